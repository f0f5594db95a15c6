"""``python -m tests.support.spark.restarts``: is the flights query's state of each batch there, and does it restart?

For each commit that is there, Spark's own source ``statestore`` reads the state, and counts the flights in it. Then the
checkpoint is copied by hard links, cut back to that commit (with the offsets of the batch after it, as a driver leaves them
that dies in the middle of it), and the query started on it. It runs the batch after the commit again, which loads the state
of the commit, and has to come to the result that this batch had. Prints a JSON line for each commit:
``{"commit": 7, "counted": 898080, "equal": true}``; ``equal`` is null where no restart was asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast_spark.pipeline import flights
from holdfast_spark.pipeline.local import stay_on_this_machine
from holdfast_spark.state_settings import settings


def main() -> None:
    """Read the state of each commit, and restart from each, or from those that are named."""
    options = _parser().parse_args()
    stay_on_this_machine()
    spark = _session(options.scratch / "local", options.conf)
    for commit in commits(options.checkpoint):
        counted = _counted(spark, options.checkpoint, commit)
        is_asked_for = not options.restart or commit in options.restart
        equal = _comes_to_the_same(spark, options, commit) if is_asked_for else None
        sys.stdout.write(json.dumps({"commit": commit, "counted": counted, "equal": equal}) + "\n")
        sys.stdout.flush()
    spark.stop()


def commits(checkpoint: Path) -> list[int]:
    """Return the batches whose commit is there."""
    return sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


def cut(checkpoint: Path, copy: Path, commit: int) -> None:
    """Make a copy as it was when the batch after ``commit`` was under way, with all that was deleted since left out."""
    shutil.copytree(checkpoint, copy, copy_function=os.link)
    for log, last in (("commits", commit), ("offsets", commit + 1)):
        for path in (copy / log).iterdir():
            if path.name.isdigit() and int(path.name) > last:
                path.unlink()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark.restarts", description=__doc__)
    for name in ("checkpoint", "input", "output", "scratch"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--restart", type=int, nargs="*")
    parser.add_argument("--conf", action="append", default=[])
    return parser


def _session(local: Path, more: Iterable[str]) -> SparkSession:
    local.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for key, value in (*settings(local).items(), *(each.split("=", 1) for each in more)):
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _counted(spark: SparkSession, checkpoint: Path, commit: int) -> int:
    """Return the sum of all counts of flights in the state after a batch."""
    state = spark.read.format("statestore").option("batchId", commit).load(f"file://{checkpoint}")
    return int(state.selectExpr("sum(value.count)").collect()[0][0])


def _comes_to_the_same(spark: SparkSession, options: argparse.Namespace, commit: int) -> bool:
    copy = options.scratch / f"from-{commit}"
    cut(options.checkpoint, copy, commit)
    found = _rerun(spark, copy, options.input, options.scratch / "output", commit + 1)
    shutil.rmtree(copy)
    return bool(found) and found == _rows(spark, options.output / f"batch={commit + 1}")


def _rerun(spark: SparkSession, checkpoint: Path, arrived: Path, output: Path, batch: int) -> set[tuple[object, ...]]:
    """Run one batch of the query and return what it changed."""

    def write(changed: DataFrame, number: int) -> None:
        assert number == batch, f"batch {number} runs, not {batch}"
        flights.write_batch(changed, number, output)

    writer = flights.aggregate(flights.arriving(spark, arrived)).writeStream.outputMode("update").foreachBatch(write)
    writer.option("checkpointLocation", f"file://{checkpoint}").trigger(once=True).start().awaitTermination()
    return _rows(spark, output / f"batch={batch}")


def _rows(spark: SparkSession, directory: Path) -> set[tuple[object, ...]]:
    return {tuple(row) for row in spark.read.parquet(f"file://{directory}").collect()}


if __name__ == "__main__":
    main()
