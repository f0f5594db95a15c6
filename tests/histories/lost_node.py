"""``./run python -m tests.histories.lost_node``: a node is lost with its disk in mid-batch, with and without standby copies.

A query's state is built on some nodes with an executor each. Then one driver goes on with small batches. In each turn the
tasks of a batch are held up in their stage with state; then a node loses its executor (its daemon and disk are kept), or its
power and its disk, or nothing, and the tasks go on. After each turn all comes back, until state and standby copies are as
before. The first turns, each with another node, are without standby copies, which are switched on after them.

Prints a row for each turn: the time from there to the batch's end, the time of the next batch, what the other nodes have
fetched in the two, and what they have fetched as standbys. A standby that is lost is replaced after five intervals of the
nodes' reports: with a short one that falls into these batches, and costs them processor time. Exits
with 1 if a node that had standby copies cost more than 2 % of its state, or the medians of the times are more than 1.15 of
those with a node that was kept. Only on a quiet machine do the times count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config.units import ByteSize
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.cluster.placed import are_covered, command, counters, held_by
from tests.cluster.settings import Settings
from tests.histories.line_options import add_line_options
from tests.histories.placement import NAME, STANDBYS, build
from tests.support.daemons.node import wait_until

_PARTITIONS_A_NODE = 4
_ROWS_A_NODE, _ROW_BYTES = 8, 50_000
"""New keys of a batch: enough that each node has some in one of its partitions."""
MOST_FETCHED, _MOST_RATIO = 0.02, 1.15
_PATIENCE_SECONDS = 600.0
FASTER = (("holdings.interval_seconds", "0.2"),)
_WITHOUT, _KEPT, _EXECUTOR, LOST = "lost, without standby copies", "kept", "executor lost", "lost"
_WITH = (_KEPT, _EXECUTOR, LOST)
_NO_STANDBYS = tuple((key, "0" if key.endswith("standbys") else value) for key, value in STANDBYS)
_CAN_GO_ON = "partitions can go on elsewhere"
_HEAD = "| node | held up batch ends after | next batch | fetched | of the node's state | fetched by standbys |"


@dataclass(frozen=True)
class Turn:
    """The outcome of one turn. ``ended_seconds`` is from when the tasks went on to the end of their batch."""

    kind: str
    ended_seconds: float
    next_seconds: float
    fetched_bytes: int
    share_bytes: int
    standby_bytes: int

    @property
    def part(self) -> float:
        """The bytes that were fetched, as a part of the state that the node had."""
        return self.fetched_bytes / self.share_bytes

    def row(self) -> str:
        return (
            f"| {self.kind} | {self.ended_seconds:.1f} s | {self.next_seconds:.1f} s | {ByteSize(self.fetched_bytes)} "
            f"| {self.part:.1%} | {ByteSize(self.standby_bytes)} |"
        )


class Follower:
    """A driver that goes on until the end, and can be held up. ``directory`` is seen by all nodes."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[str], directory: Path) -> None:
        self._cluster = cluster
        self._process = process
        self._directory = directory

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, kind: str, every_seconds: float) -> Iterator[Follower]:
        """Run a driver on the first node, which begins a batch every so many seconds; it ends with the block."""
        directory = cluster.shared / "follow"
        directory.mkdir()
        directory.chmod(0o777)
        rows = _ROWS_A_NODE * len(cluster.nodes)
        sources = len(cluster.nodes) // 2  # so shuffle files are not on all nodes
        job = ["--kind", kind, "--rows", str(rows), "--row-bytes", str(_ROW_BYTES), "--sources", str(sources)]
        job += ["--follow", str(directory)]
        words = command(NAME, *job, "--every", str(every_seconds), executors=len(cluster.nodes))
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

    def knows_of_copies(self) -> bool:
        """Say whether the driver knows for each partition who else has its state."""
        lines = (self._cluster.directory / "follow.err").read_text().splitlines()
        told = [line for line in lines if line.endswith(_CAN_GO_ON)]
        count = self._cluster.settings.partitions
        return bool(told) and f" {count} of {count} {_CAN_GO_ON}" in told[-1]

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
    reports = (("holdings.interval_seconds", str(options.interval)),)
    settings = Settings(
        nodes=options.nodes,
        cores=options.cores,
        executor_cores=options.cores,
        partitions=_PARTITIONS_A_NODE * options.nodes,
        away_seconds=options.delay / 2000,
        worker_memory="2g",
        bytes_per_second=options.bandwidth * 125_000,
        options=(*reports, *_NO_STANDBYS),
    )
    turns: dict[str, list[Turn]] = {kind: [] for kind in (_WITHOUT, *_WITH)}
    with Cluster.running(options.directory, settings) as cluster:
        build(cluster, options.kind, options.size)
        with Follower.running(cluster, options.kind, options.every) as follower:
            follower.wait_for(2)
            print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}", flush=True)
            for node in cluster.nodes[: -1 - options.without : -1]:
                _take(turns[_WITHOUT], turn(cluster, follower, _WITHOUT, node))
            for node in cluster.nodes:
                node.set_options((*reports, *STANDBYS))
            for _ in range(options.turns):
                for kind in _WITH:
                    _take(turns[kind], turn(cluster, follower, kind, cluster.nodes[-1]))
    return _judged(turns)


def _take(turns: list[Turn], taken: Turn) -> None:
    turns.append(taken)
    print(taken.row(), flush=True)


def _judged(turns: Mapping[str, Sequence[Turn]]) -> int:
    """Print the medians; return the exit status."""
    ended = {kind: statistics.median(one.ended_seconds for one in each) for kind, each in turns.items() if each}
    following = {kind: statistics.median(one.next_seconds for one in each) for kind, each in turns.items() if each}
    for kind in ended:
        print(
            f"{kind}: held up batch {ended[kind]:.1f} s, {ended[kind] / ended[_EXECUTOR]:.2f} of executor lost; "
            f"next batch {following[kind]:.1f} s, {following[kind] / following[_KEPT]:.2f} of kept; "
            f"fetched {max(each.part for each in turns[kind]):.1%} at most",
            flush=True,
        )
    ratios = ended[LOST] / ended[_EXECUTOR], following[LOST] / following[_KEPT]
    return 0 if max(ratios) <= _MOST_RATIO and all(each.part <= MOST_FETCHED for each in turns[LOST]) else 1


def turn(cluster: Cluster, follower: Follower, kind: str, node: ClusterNode) -> Turn:
    """Lose what ``kind`` says of a node in mid-batch; return when it is on its way back."""
    wait_until(lambda: _is_at_home(cluster, standbys=kind != _WITHOUT), seconds=_PATIENCE_SECONDS)
    if kind != _WITHOUT:
        wait_until(follower.knows_of_copies, seconds=_PATIENCE_SECONDS)
    share_bytes = sum(_own(node).values())
    follower.hold_up()
    before, before_copies = _fetched_by_others(cluster, node)
    count = len(follower.batches())
    is_lost = kind in (LOST, _WITHOUT)
    if is_lost:
        node.kill()
        node.lose_disk()
    elif kind == _EXECUTOR:
        node.kill_executors()
    began = time.time()
    follower.go_on()
    follower.wait_for(count + 2)
    held_up, following = follower.batches()[count : count + 2]
    after, after_copies = _fetched_by_others(cluster, node)
    if is_lost:
        node.start()
        node.wait_for_worker()
    return Turn(kind, held_up["at"] - began, following["seconds"], after - before, share_bytes, after_copies - before_copies)


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


def _fetched_by_others(cluster: Cluster, node: ClusterNode) -> tuple[int, int]:
    """Return how many bytes the other nodes have fetched so far: for tasks, and for standby copies."""
    others = [each for name, each in counters(cluster).items() if name != node.name]
    for_copies = sum(each["standby_bytes_fetched"] for each in others)
    return sum(each["bytes_fetched"] for each in others) - for_copies, for_copies


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.lost_node", description=__doc__)
    parser.add_argument(
        "--kind", choices=("aggregation", "transform"), default="aggregation", help="which operator keeps the state"
    )
    parser.add_argument("--size", type=ByteSize.parse, default=ByteSize(540 * 10**6), help="of the state (default 515 MiB)")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--cores",
        type=int,
        default=1,
        help="of each executor (default 1: with a node less the others have more rounds of tasks; with twice as many as "
        "a node has partitions there is one round before and after)",
    )
    parser.add_argument("--turns", type=int, default=3, help="of each kind with standby copies (default 3)")
    parser.add_argument("--without", type=int, default=2, metavar="TURNS", help="without standby copies (default 2)")
    parser.add_argument("--every", type=float, default=20.0, metavar="SECONDS", help="at which batches begin (default 20)")
    parser.add_argument("--interval", type=float, default=6.0, metavar="SECONDS", help="of the nodes' reports (default 6)")
    add_line_options(parser, bandwidth=1000, delay=30.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
