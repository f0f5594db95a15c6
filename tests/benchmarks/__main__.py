"""``python -m tests.benchmarks``: measure Holdfast beside the plain disk and its peers, all in one run."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tests.benchmarks import data, database, fetching, machine, memory, metadata, plot, s3a, spark, spark_plot, stalls
from tests.benchmarks.report import Report, decoded
from tests.benchmarks.requests import RequestCounter
from tests.benchmarks.rows import Row, Scale
from tests.benchmarks.runner import Runner
from tests.benchmarks.spark_sides import Bench
from tests.benchmarks.store_lines import StoreLine
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
    if options.keys:
        scale = replace(scale, state_keys=options.keys)
    with Sides.made(options.directory) as sides, RequestCounter.made() as counter:
        bench = Bench(sides, options.lines or [StoreLine()], _jars())
        rows = _with(options.targets, _chosen(_rows(sides, bench, scale), options.only))
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
    if options.spark_plot is not None:
        options.spark_plot.write_text(spark_plot.drawn(report))


def _jars() -> Path | None:
    """Return the jars of S3A; None, with the reason told, where they can't be had."""
    try:
        return s3a.jars()
    except s3a.JarsError as problem:
        print(f"S3A is left out: {problem}", file=sys.stderr)
        return None


def _rows(sides: Sides, bench: Bench, scale: Scale) -> list[Row]:
    """Return all rows there are."""
    plain_bindfs_work = [sides.plain, sides.bindfs, sides.work]
    return [
        *metadata.rows(sides.directories, scale),
        *data.rows([target for target in sides.directories if target is not sides.checkpoints], scale),
        *database.rows([sides.plain, sides.work], scale),
        *fetching.rows(sides, scale),
        *spark.rows(bench, scale),
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


def _with(names: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return the rows with these targets only, where they have any of them."""
    if not names:
        return list(rows)
    known = {target.name for row in rows for target in row.targets}
    if unknown := sorted(set(names) - known):
        sys.exit(f"there is no target {', '.join(unknown)} in these rows; there are: {', '.join(sorted(known))}")
    kept = [replace(row, targets=tuple(target for target in row.targets if target.name in names)) for row in rows]
    return [row for row in kept if row.targets]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="only these rows; a wrong name lists all")
    parser.add_argument("--targets", nargs="+", default=[], metavar="TARGET", help="only these; a wrong name lists all")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured on each target (default 5)")
    parser.add_argument("--quick", action="store_true", help="small scales: to try it, not for figures")
    parser.add_argument(
        "--lines",
        nargs="+",
        type=StoreLine.parse,
        metavar="MS[:MBIT]",
        help="how far the S3 store of the Spark rows is, and how much the line carries, as in 5 or 30:1000 (default 30)",
    )
    parser.add_argument("--keys", type=int, help="how many keys the state of spark-restart has (default 4,800,000)")
    parser.add_argument("--output", type=Path, help="write the report as JSON to this file")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="draw the ratios of the report into this file")
    parser.add_argument("--spark-plot", type=Path, metavar="SVG", help="draw what batches and restarts of Spark take")
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
