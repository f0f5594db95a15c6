"""Check every object of an inventory against the digest that was stored with it, at a set rate.

A scrub that was cut off goes on where it stopped: give it the same inventory and the same directory of results again. It
exits with 1 when an object is corrupt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoints.restoring.object_checks import Outcome
from holdfast.config.units import ByteSize
from holdfast.errors import ConfigurationError
from holdfast.system.text import printable
from holdfast_spark.arrow_forms import OBJECTS
from holdfast_spark.jobs.digest_checks import CHECKED, Checker
from holdfast_spark.jobs.formatting import counted, size, table
from holdfast_spark.jobs.inventory_files import OBJECTS_PER_FILE, Inventory, described
from holdfast_spark.jobs.job_command import add_store_and_inventory, parser_of, positive, run, store_and_inventory
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.stores import PRIVATE

_SHOWN = 20
_SECONDS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("scrub", __doc__)
    add_store_and_inventory(parser)
    parser.add_argument("results", metavar="RESULTS", help="a directory for what came out, and for how far the scrub is")
    parser.add_argument("--bytes-per-second", type=_rate, metavar="SIZE", help="read no faster, all tasks together: 200MiB")
    parser.add_argument("--objects-per-second", type=positive, metavar="NUMBER", help="begin no more, all tasks together")
    return run("scrub", _job, parser, arguments)


def results(spark: SparkSession, path: str) -> DataFrame:
    """Return what came out so far: ``checking.CHECKED``."""
    return spark.read.schema(CHECKED.ddl).parquet(f"{path.rstrip('/')}/checked")


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    address, inventory = store_and_inventory(spark, options)
    path = options.results.rstrip("/")
    _claim(spark, inventory, path)
    tasks = spark.sparkContext.defaultParallelism
    checker = Checker(address, *(rate and rate / tasks for rate in (options.bytes_per_second, options.objects_per_second)))
    done: dict[int, int] = {}
    with progress.step("checking", follow=False):
        query = _start(spark, inventory, checker, tasks, path)
        try:
            while not query.awaitTermination(_SECONDS):
                done.update({each["batchId"]: each["numInputRows"] for each in query.recentProgress})
                progress.tell(f"checked {sum(done.values()):,} more of {inventory.about.objects:,}")
        finally:
            query.stop()
    return _tell(results(spark, path))


def _claim(spark: SparkSession, inventory: Inventory, path: str) -> None:
    """Note which inventory the results are of. Raises ``ConfigurationError`` when they are of another one."""
    of_this = [inventory.about.store, inventory.about.prefix, inventory.about.began_ns, inventory.path]
    try:
        found = list(spark.read.parquet(f"{path}/of").first() or ())
    except AnalysisException:
        row = spark.range(1).select(*(f.lit(value).alias(f"of_{index}") for index, value in enumerate(of_this)))
        row.coalesce(1).write.parquet(f"{path}/of")
        return
    if found != of_this:
        raise ConfigurationError(f"{path} has results of another inventory ({found[-1]}); name another directory")


def _start(spark: SparkSession, inventory: Inventory, checker: Checker, tasks: int, path: str) -> StreamingQuery:
    """Read the inventory as a stream of files: Spark's own checkpoint knows which of them are done."""
    files = len(inventory.objects.inputFiles())
    rows = inventory.about.objects + inventory.about.directories
    at_once = max(1, OBJECTS_PER_FILE * files // max(1, rows))
    source = spark.readStream.schema(OBJECTS.ddl).option("maxFilesPerTrigger", at_once)
    objects = described(source.parquet(f"{inventory.path}/objects")).where(
        ~f.col("is_directory") & ~f.col("key").startswith(f"{PRIVATE}/")
    )
    checked = objects.repartition(tasks).mapInArrow(checker.check, CHECKED.ddl)
    sink = checked.writeStream.format("parquet").option("checkpointLocation", f"{path}/progress")
    return sink.trigger(availableNow=True).start(f"{path}/checked")


def _tell(checked: DataFrame) -> int:
    outcomes = checked.groupBy("outcome").agg(f.count("*").alias("objects"), f.sum("size_bytes").alias("bytes"))
    found = {row.outcome: (row.objects, row.bytes) for row in outcomes.collect()}
    counts = [(outcome.value, *found[outcome.value]) for outcome in Outcome if outcome.value in found]
    rows = [(outcome, objects, size(size_bytes)) for outcome, objects, size_bytes in counts]
    print(table(("outcome", "objects", "size"), rows) if rows else "no objects")
    corrupt = found.get(Outcome.CORRUPT.value, (0, 0))[0]
    for row in checked.where(f.col("outcome") == Outcome.CORRUPT.value).orderBy("key").limit(_SHOWN).collect():
        print(printable(f"corrupt: {row.key}: {row.detail}"))
    if corrupt > _SHOWN:
        print(f"… and {counted(corrupt - _SHOWN, 'more', 'more')}; all of them stand in the results")
    return 1 if corrupt else 0


def _rate(text: str) -> int:
    try:
        return int(ByteSize.parse(text)) or positive(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


if __name__ == "__main__":
    sys.exit(main())
