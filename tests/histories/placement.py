"""``./run python -m tests.histories.placement``: ten new drivers over three nodes' state, and one node with all of it.

A query's state is built on three nodes with a core each, and, with ``--compare``, again on one node with three. Then drivers
start by turns on both, each for one batch. Prints a row for each start, and a last one for a start without the third node.
Exits with 1 if a start fetched more than 2 % of the state, a node had less than 3 or more than 5 of 12 partitions, or the
other nodes fetched more than the lost one's share, or with ``--standbys`` more than 2 % of it: then each partition has a
copy on a second node before the third one is lost. Takes half an hour on a quiet machine; only there do the times count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from holdfast.config.units import ByteSize
from tests.cluster.cluster import Cluster
from tests.cluster.placed import Start, are_covered, fetched, fetched_by_standbys, held, held_by, sent, start
from tests.cluster.settings import Settings
from tests.histories.line_options import add_line_options
from tests.support.daemons.node import wait_until

_NODES, _PARTITIONS = 3, 12
_MOST_FETCHED = 0.02
_FEWEST, _MOST = 3, 5
_BATCHES = 3
_ROW_BYTES = 50_000
_ROWS_OF_A_RESTART = 24
_SIDES = {"aggregation": 1, "join": 2, "transform": 1}
"""How often each row's bytes are in the state."""
_SNAPSHOTS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled=false"
"""While the state is built each batch ends with a snapshot, as a state that large mostly consists of."""
STANDBYS = (
    ("holdings.refresh_seconds", "1"),
    ("stores.checkpoints.standbys", "1"),
    ("stores.checkpoints.standby_seconds", "1"),
)
NAME = "placed"
_HEAD = "| start | partitions | fetched | of the state | first batch | on one node | ratio |"


@dataclass(frozen=True)
class Row:
    """One start on three nodes, and the start on one that it is compared with."""

    title: str
    start: Start
    fetched_bytes: int
    alone: Start | None = None

    def cells(self, state_bytes: int) -> Iterator[str]:
        yield self.title
        yield "; ".join(", ".join(map(str, balance)) for balance in self.start.balances())
        yield str(ByteSize(self.fetched_bytes))
        yield f"{self.fetched_bytes / state_bytes:.1%}"
        yield f"{self.start.seconds:.1f} s"
        yield f"{self.alone.seconds:.1f} s" if self.alone else "–"
        yield f"{self.start.seconds / self.alone.seconds:.2f}" if self.alone else "–"


def main() -> int:
    """Build, restart, lose a node; return the exit status."""
    options = _parser().parse_args()
    settings = Settings(
        nodes=_NODES,
        partitions=_PARTITIONS,
        away_seconds=options.delay / 2000,
        worker_memory="4g",
        bytes_per_second=options.bandwidth * 125_000,
        options=(("holdings.interval_seconds", "0.2"), *(STANDBYS if options.standbys else ())),
    )
    with ExitStack() as stack:
        three = stack.enter_context(Cluster.running(options.directory, settings))
        alone = replace(settings, nodes=1, cores=_NODES)
        one = stack.enter_context(Cluster.running(options.directory, alone)) if options.compare else None
        for cluster in (three, one):
            if cluster is not None:
                build(cluster, options.kind, options.size)
        home = {node.name: held_by(node, NAME, copies=False) for node in three.nodes}
        state_bytes = sum(sum(partitions.values()) for partitions in home.values())
        _tell(
            f"{ByteSize(state_bytes)} of state: {', '.join(f'{name} {sorted(each)}' for name, each in sorted(home.items()))}"
        )
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}", flush=True)
        rows = []
        for number in range(1, options.restarts + 1):
            rows.append(_restarted(three, one, options.kind, str(number)))
            print(f"| {' | '.join(rows[-1].cells(state_bytes))} |", flush=True)
        share = sum(held_by(three.nodes[2], NAME, copies=False).values())
        if options.standbys:
            wait_until(lambda: are_covered(three, NAME, _PARTITIONS))
            _tell(f"{ByteSize(fetched_by_standbys(three))} fetched by standbys, {ByteSize(sent(three))} sent by all nodes")
        three.nodes[2].kill()
        three.nodes[2].lose_disk()
        lost = _restart_without_one(three, options.kind)
        print(f"| {' | '.join(lost.cells(state_bytes))} |", flush=True)
    print(f"\n{ByteSize(state_bytes)} of state, {ByteSize(share)} of it on node 3", flush=True)
    if options.compare:
        ratios = [row.start.seconds / row.alone.seconds for row in rows if row.alone]
        print(f"median of the ratios: {statistics.median(ratios):.2f}", flush=True)
    most = _MOST_FETCHED * share if options.standbys else share + _MOST_FETCHED * state_bytes
    return 0 if all(_is_good(row, state_bytes) for row in rows) and lost.fetched_bytes <= most else 1


def build(cluster: Cluster, kind: str, size_bytes: int) -> None:
    """Build so much state of the query ``NAME`` in some batches, on all nodes."""
    rows = size_bytes // _SIDES[kind] // _ROW_BYTES // _BATCHES
    arguments = ("--kind", kind, "--batches", str(_BATCHES), "--rows", str(rows), "--row-bytes", str(_ROW_BYTES))
    began = time.monotonic()
    start(cluster, NAME, *arguments, executors=cluster.settings.executors, confs=[_SNAPSHOTS])
    wait_until(lambda: sum(map(len, held(cluster, NAME).values())) >= cluster.settings.partitions)
    _tell(f"built on {len(cluster.nodes)} nodes in {time.monotonic() - began:.0f} s")


def _restarted(three: Cluster, one: Cluster | None, kind: str, title: str) -> Row:
    before = sum(fetched(three).values())
    spread = _restart(three, kind, _NODES)
    fetched_bytes = sum(fetched(three).values()) - before
    return Row(title, spread, fetched_bytes, _restart(one, kind, _NODES) if one is not None else None)


def _restart_without_one(three: Cluster, kind: str) -> Row:
    before = fetched(three)
    spread = _restart(three, kind, _NODES - 1)
    by_node = {name: total - before[name] for name, total in fetched(three).items()}
    _tell(f"fetched without node3: {', '.join(f'{name} {ByteSize(each)}' for name, each in sorted(by_node.items()))}")
    return Row("node 3 lost", spread, sum(by_node.values()))


def _restart(cluster: Cluster, kind: str, executors: int) -> Start:
    rows = ("--rows", str(_ROWS_OF_A_RESTART), "--row-bytes", str(_ROW_BYTES))
    return start(cluster, NAME, "--kind", kind, *rows, executors=executors)


def _is_good(row: Row, state_bytes: int) -> bool:
    even = all(_FEWEST <= count <= _MOST for balance in row.start.balances() for count in balance)
    return even and row.fetched_bytes <= _MOST_FETCHED * state_bytes


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.placement", description=__doc__)
    parser.add_argument("--kind", choices=sorted(_SIDES), default="aggregation", help="which operator keeps the state")
    parser.add_argument("--size", type=ByteSize.parse, default=ByteSize(540 * 10**6), help="of the state (default 515 MiB)")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--compare", action="store_true", help="with one node that has everything")
    parser.add_argument("--standbys", action="store_true", help="with a standby copy of each partition")
    add_line_options(parser, bandwidth=0, delay=0.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
