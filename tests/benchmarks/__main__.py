"""``python -m tests.benchmarks``: measure Holdfast beside the plain disk and its peers, all in one run."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.benchmarks import data, database, fetching, machine, memory, metadata, plot, spark, stalls
from tests.benchmarks.report import Report, decoded
from tests.benchmarks.requests import RequestCounter
from tests.benchmarks.rows import Row, Scale
from tests.benchmarks.runner import Runner
from tests.benchmarks.table import Screen
from tests.benchmarks.targets import Sides

_WIDTH_IN_FILES = 132


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; return its exit status: 0 unless a row could not be measured."""
    options = _parser().parse_args(arguments)
    if options.report is not None:
        _write_files(options, decoded(options.report.read_bytes()))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what runs in the background with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    scale = Scale.quick() if options.quick else Scale()
    with Sides.made(options.directory) as sides, RequestCounter.made() as counter:
        rows = _chosen(_rows(sides, scale), options.only)
        report = Report(
            command=shlex.join(["./run", "bench", *arguments]),
            began=time.time(),
            seconds=0.0,
            rounds=options.rounds,
            machine=machine.describe(sides.directory),
            targets={target.name: target.command for row in rows for target in row.targets},
            notes=[f"data mode of Holdfast: {sides.node.status().data_mode}"],
            lines=[],
        )
        with Screen(_console(), len(rows), options.rounds) as screen:
            runner = Runner(scale, options.rounds, counter, sides.settle, screen.progress)
            for row in rows:
                found = runner.run(row)
                screen.done(found)
                report.lines += found
                report.seconds = time.time() - report.began
                _write_files(options, report)  # what is measured is kept, whatever becomes of the rest
            screen.end(report)
    return 0


def _write_files(options: argparse.Namespace, report: Report) -> None:
    if options.output is not None:
        options.output.write_bytes(report.encoded())
    if options.plot is not None:
        options.plot.write_text(plot.drawn(report))


def _rows(sides: Sides, scale: Scale) -> list[Row]:
    """Return all rows there are."""
    plain_bindfs_work = [sides.plain, sides.bindfs, sides.work]
    return [
        *metadata.rows(sides.directories, scale),
        *data.rows([target for target in sides.directories if target is not sides.checkpoints], scale),
        *database.rows([sides.plain, sides.work], scale),
        *fetching.rows(sides, scale),
        *spark.rows(sides, scale),
        *memory.rows(sides, scale),
        *stalls.rows(plain_bindfs_work, scale),
    ]


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_IN_FILES)


def _chosen(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    unknown = sorted(set(names) - {row.name for row in rows})
    if unknown:
        sys.exit(f"there is no row {', '.join(unknown)}; there are: {', '.join(row.name for row in rows)}")
    return [row for row in rows if not names or row.name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="only these rows; a wrong name lists all")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured on each target (default 5)")
    parser.add_argument("--quick", action="store_true", help="small scales: to try it, not for figures")
    parser.add_argument("--output", type=Path, help="write the report as JSON to this file")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="draw the ratios of the report into this file")
    parser.add_argument("--report", type=Path, metavar="JSON", help="measure nothing: take the report from this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp")),
        help="where everything is made and removed again; on the disk to be measured (default /var/tmp)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
