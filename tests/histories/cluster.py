"""``./run python -m tests.histories.cluster``: the demo's job on several nodes, which are killed, cut off and lost.

Prints a row for each fault as soon as it is through, and exits with 1 if an answer was wrong. Takes ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from holdfast.config.units import ByteSize
from tests.cluster import faults
from tests.cluster.cluster import Cluster
from tests.cluster.job import ClusterJob
from tests.cluster.play import Outcome, Play
from tests.cluster.settings import Settings

_DISK_BYTES = 2**30
_FILES = 240
_FAULTS = tuple(dict.fromkeys((*faults.ALL, *faults.WITH_STANDBYS)))
_HEAD = "| fault | next commit after | from disks | from the store | query | answer |"


def main() -> int:
    """Strike with all faults, or those that are named; return the exit status."""
    options = _parser().parse_args()
    usual = faults.WITH_STANDBYS if options.standbys else faults.ALL
    chosen = [fault for fault in _FAULTS if fault.name in options.only] if options.only else usual
    copies = (("holdings.refresh_seconds", "1"), ("stores.checkpoints.standbys", str(options.standbys)))
    settings = Settings(
        nodes=options.nodes,
        partitions=options.partitions,
        away_seconds=options.delay / 2000,
        disk_bytes=_DISK_BYTES,
        options=(*copies, ("stores.checkpoints.standby_seconds", "1")) if options.standbys else (),
        spark=tuple((key, value) for key, value in options.spark),
    )
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    wrong = 0
    with Cluster.running(options.directory, settings) as cluster:
        tell(f"{settings.nodes} nodes are up")
        play = Play(cluster, ClusterJob(cluster, "flights", _FILES), tell)
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        for fault in chosen:
            outcome = play.strike(fault, compare=not options.compare_once)
            print(_row(outcome, compared=not options.compare_once), flush=True)
            wrong += outcome.differences
        if options.compare_once:
            wrong = play.differences()
            print(f"the answer after all of them: {wrong} rows wrong")
        play.end()
    return 1 if wrong else 0


def _row(outcome: Outcome, *, compared: bool) -> str:
    cells = [outcome.fault, f"{outcome.seconds:.1f} s"]
    cells += [str(ByteSize(size)) for size in (outcome.disk_bytes, outcome.store_bytes)]
    cells += ["ended, started again" if outcome.ended else "went on"]
    cells += [(f"{outcome.differences} rows wrong" if outcome.differences else "equal") if compared else "see below"]
    return f"| {' | '.join(cells)} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="the store's round trip (default 0)")
    parser.add_argument("--only", nargs="+", metavar="FAULT", choices=[fault.name for fault in _FAULTS])
    parser.add_argument("--standbys", type=int, default=0, metavar="COPIES", help="of each partition; and their own faults")
    parser.add_argument(
        "--spark",
        nargs=2,
        action="append",
        default=[],
        metavar=("KEY", "VALUE"),
        help="a setting of Spark; may be repeated",
    )
    parser.add_argument("--compare-once", action="store_true", help="compare the answer at the end only")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
