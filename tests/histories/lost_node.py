"""``./run python -m tests.histories.lost_node``: a node is lost with its disk in mid-batch, or only its executor, by turns.

A query's state is built on some nodes with a core each. Then one driver goes on with small batches. In each turn the tasks
of a batch are held up in their stage with state; then the last node loses its executor (its daemon and disk are kept), or
its power and its disk, and the tasks go on. After each turn all comes back, until state and standby copies are as before.
Prints a row for each turn: the time from there to the batch's end, the time of the next batch, and what the other nodes
have fetched in the two, without what standbys fetch. Exits with 1 if a lost node cost more than 2 % of its state, or the
medians of the times are more than 1.15 of those with the node kept. Only on a quiet machine do the times count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from holdfast.config.units import ByteSize
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.cluster.placed import are_covered, command, fetched, held_by
from tests.cluster.settings import Settings
from tests.histories.placement import NAME, STANDBYS, build
from tests.support.daemons.node import wait_until

_PARTITIONS_A_NODE = 4
_ROWS, _ROW_BYTES = 24, 50_000
_EVERY_SECONDS = 20
_MOST_FETCHED, _MOST_RATIO = 0.02, 1.15
_PATIENCE_SECONDS = 600.0
_TURNS = ("kept", "lost")
_HEAD = "| node | held up batch ends after | next batch | fetched | of the node's state |"


@dataclass(frozen=True)
class Turn:
    """The outcome of one turn. ``ended_seconds`` is from when the tasks went on to the end of their batch."""

    kind: str
    ended_seconds: float
    next_seconds: float
    fetched_bytes: int
    share_bytes: int

    @property
    def part(self) -> float:
        """The bytes that were fetched, as a part of the state that the node had."""
        return self.fetched_bytes / self.share_bytes

    def row(self) -> str:
        return (
            f"| {self.kind} | {self.ended_seconds:.1f} s | {self.next_seconds:.1f} s | {ByteSize(self.fetched_bytes)} "
            f"| {self.part:.1%} |"
        )


class Follower:
    """A driver that goes on until the end, and can be held up. ``directory`` is seen by all nodes."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[str], directory: Path) -> None:
        self._cluster = cluster
        self._process = process
        self._directory = directory

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, kind: str) -> Iterator[Follower]:
        """Run a driver on the first node; it ends with the block."""
        directory = cluster.shared / "follow"
        directory.mkdir()
        directory.chmod(0o777)
        job = ("--kind", kind, "--rows", str(_ROWS), "--row-bytes", str(_ROW_BYTES), "--follow", str(directory))
        words = command(NAME, *job, "--every", str(_EVERY_SECONDS), executors=len(cluster.nodes))
        output, errors = cluster.directory / "follow.out", cluster.directory / "follow.err"
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(cluster.nodes[0].command(*words), stdout=out, stderr=err, text=True)
        try:
            yield cls(cluster, process, directory)
        finally:
            (directory / "stop").touch()
            (directory / "hold").unlink(missing_ok=True)
            process.wait(_PATIENCE_SECONDS)

    def batches(self) -> list[dict[str, Any]]:
        """Return the batches so far: number, seconds, and when their end was seen."""
        assert self._process.poll() is None, (self._cluster.directory / "follow.err").read_text()[-3000:]
        lines = (self._cluster.directory / "follow.out").read_text().splitlines()
        return [line for line in map(json.loads, lines) if "at" in line]

    def wait_for(self, count: int) -> None:
        """Return when there have been so many batches."""
        wait_until(lambda: len(self.batches()) >= count, seconds=_PATIENCE_SECONDS)

    def hold_up(self) -> None:
        """Return when a task on each node waits in its stage with state."""
        for file in self._directory.glob("waiting-*"):
            file.unlink()
        (self._directory / "hold").touch()
        nodes = len(self._cluster.nodes)
        wait_until(lambda: len(list(self._directory.glob("waiting-*"))) >= nodes, seconds=_PATIENCE_SECONDS)

    def go_on(self) -> None:
        """Let the tasks go on."""
        (self._directory / "hold").unlink()


def main() -> int:
    """Build, lose, bring back; return the exit status."""
    options = _parser().parse_args()
    settings = Settings(
        nodes=options.nodes,
        partitions=_PARTITIONS_A_NODE * options.nodes,
        away_seconds=options.delay / 2000,
        worker_memory="2g",
        bytes_per_second=options.bandwidth * 125_000,
        options=(("holdings.interval_seconds", "0.2"), *(() if options.without else STANDBYS)),
    )
    with Cluster.running(options.directory, settings) as cluster:
        build(cluster, options.kind, options.size)
        turns = []
        with Follower.running(cluster, options.kind) as follower:
            follower.wait_for(2)
            print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}", flush=True)
            for _ in range(options.turns):
                for kind in _TURNS:
                    turns.append(_turn(cluster, follower, kind, standbys=not options.without))
                    print(turns[-1].row(), flush=True)
    kept, lost = ([turn for turn in turns if turn.kind == kind] for kind in _TURNS)
    ratios = [
        statistics.median(seconds(turn) for turn in lost) / statistics.median(seconds(turn) for turn in kept)
        for seconds in (attrgetter("ended_seconds"), attrgetter("next_seconds"))
    ]
    print(f"\nlost to kept: {ratios[0]:.2f} (held up batch), {ratios[1]:.2f} (next batch)", flush=True)
    return 0 if max(ratios) <= _MOST_RATIO and all(turn.part <= _MOST_FETCHED for turn in lost) else 1


def _turn(cluster: Cluster, follower: Follower, kind: str, *, standbys: bool) -> Turn:
    node = cluster.nodes[-1]
    wait_until(lambda: _is_at_home(cluster, standbys=standbys), seconds=_PATIENCE_SECONDS)
    share_bytes = sum(_own(node).values())
    follower.hold_up()
    before = _fetched_by_others(cluster, node)
    count = len(follower.batches())
    if kind == "lost":
        node.kill()
        node.lose_disk()
    else:
        node.kill_executors()
    began = time.time()
    follower.go_on()
    follower.wait_for(count + 2)
    held_up, following = follower.batches()[count : count + 2]
    fetched_bytes = _fetched_by_others(cluster, node) - before
    if kind == "lost":
        node.start()
        node.wait_for_worker()
    return Turn(kind, held_up["at"] - began, following["seconds"], fetched_bytes, share_bytes)


def _is_at_home(cluster: Cluster, *, standbys: bool) -> bool:
    """Say whether each node works with its share, and each partition has a standby copy."""
    return all(len(_own(node)) >= _PARTITIONS_A_NODE - 1 for node in cluster.nodes) and (
        not standbys or are_covered(cluster, NAME, cluster.settings.partitions)
    )


def _own(node: ClusterNode) -> dict[int, int]:
    """Return the bytes of the partitions that a node works with: those whose newest version is its own."""
    newest = max(_versions(node), default=0)
    return held_by(node, NAME, newest, copies=False)


def _versions(node: ClusterNode) -> Iterator[int]:
    with node.client() as client:
        infos = client.holdings().nodes
    for query in (query for info in infos for query in info.queries if query.path.endswith(f"/{NAME}")):
        yield from (store.version for store in query.stores)


def _fetched_by_others(cluster: Cluster, node: ClusterNode) -> int:
    return sum(each for name, each in fetched(cluster).items() if name != node.name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.lost_node", description=__doc__)
    parser.add_argument(
        "--kind", choices=("aggregation", "transform"), default="aggregation", help="which operator keeps the state"
    )
    parser.add_argument("--size", type=ByteSize.parse, default=ByteSize(540 * 10**6), help="of the state (default 515 MiB)")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--turns", type=int, default=3, help="of each kind (default 3)")
    parser.add_argument("--without", action="store_true", help="without standby copies")
    parser.add_argument("--bandwidth", type=int, default=1000, metavar="MBIT/S", help="of each node's line (default 1000)")
    parser.add_argument("--delay", type=float, default=30.0, metavar="MS", help="the store's round trip (default 30)")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
