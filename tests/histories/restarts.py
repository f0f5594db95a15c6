"""``./run python -m tests.histories.restarts``: checkpoints damaged file by file, and whether Spark agrees with verify.

Each sample of a checkpoint is laid out; each of its files in turn is taken away, cut short, emptied or has a byte flipped.
Verify says which batches can be restored; Spark restarts from the newest of them, and from one of the others by turns, in
the same JVM. It has to go on with the right state where verify says that it can, and to fail or come to something else where
it can't. Prints each disagreement, and a table. Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.checkpoints.damages import damages, files_below, verified
from tests.support.spark.damages import Trial, trial
from tests.support.spark.trials import BY_NAME, Laid, answers, session


def main() -> int:
    """Try the samples that are asked for."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.restarts", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(BY_NAME), default=sorted(BY_NAME))
    parser.add_argument("--every", type=int, default=1, help="try only each so many")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-restarts-", dir="/var/tmp"))
    spark = session(directory / "local")
    wrong = 0
    print("| sample | damages | restarts | restored | refused | disagreements | seconds |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name in options.only:
        began = time.monotonic()
        trials = []
        for each in _trials(spark, Laid(name, directory / name), directory / "trial", options.every):
            trials.append(each)
            if not each.agrees:
                print(f"DISAGREE: {each.damage} from {each.batch}: {each.verdict}; Spark: {each.outcome}", flush=True)
        agreeing = sum(each.agrees for each in trials)
        restored = sum(each.is_right for each in trials)
        wrong += len(trials) - agreeing
        damaged = len({each.damage for each in trials})
        cells = (damaged, len(trials), restored, len(trials) - restored, len(trials) - agreeing)
        print(f"| {name} | {' | '.join(map(str, cells))} | {time.monotonic() - began:.0f} |", flush=True)
    spark.stop()
    shutil.rmtree(directory)
    return 1 if wrong else 0


def _trials(spark: SparkSession, laid: Laid, scratch: Path, every: int) -> Iterator[Trial]:
    retained = [int(each.name.rpartition(b"/")[2]) for each in verified(laid.checkpoint) if not each.is_expired]
    laid.arrive()
    right = answers(spark, laid, scratch, retained)
    older = retained[:-1]
    for number, damage in enumerate(damages(files_below(laid.checkpoint))):
        if number % every == 0:
            yield trial(spark, laid, scratch, damage, None, right[retained[-1]])
            batch = older[number // every % len(older)]
            yield trial(spark, laid, scratch, damage, batch, right[batch])


if __name__ == "__main__":
    sys.exit(main())
