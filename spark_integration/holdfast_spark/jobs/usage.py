"""Say who uses how much of a store, and how that grows: a table here, and one HTML file with plots in it.

Give several inventories of one store, of different days, to see growth.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.errors import ConfigurationError
from holdfast_spark.arrow_forms import PLACED
from holdfast_spark.jobs.checkpoint_locations import located, named
from holdfast_spark.jobs.computed_once import Hold, holding
from holdfast_spark.jobs.formatting import moment, size, table
from holdfast_spark.jobs.inventory_files import Inventory
from holdfast_spark.jobs.job_command import made, parser_of, positive, run
from holdfast_spark.jobs.owners import OWNED, Owners
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.jobs.usage_report import Amount, Usage, report

_REST = "all others"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("usage", __doc__)
    parser.add_argument("inventories", nargs="+", metavar="INVENTORY", help="of one store, as the job inventory makes them")
    parser.add_argument("--report", type=Path, default=Path("usage.html"), help="the file to write (default: usage.html)")
    parser.add_argument("--top", type=positive, default=20, metavar="NUMBER", help="how many owners are shown (default: 20)")
    return run("usage", _job, parser, arguments)


def amounts(spark: SparkSession, paths: Sequence[str], hold: Hold) -> tuple[list[Inventory], DataFrame]:
    """Return inventories, oldest first, and what each owner has in each: ``began_ns, owner, purpose, objects, bytes``.

    Raises ``ConfigurationError`` when they are not of one store.
    """
    inventories = sorted((Inventory(spark, path) for path in paths), key=lambda each: each.about.began_ns)
    stores = {(each.about.store, each.about.prefix) for each in inventories}
    if len(stores) > 1:
        names = " and ".join(sorted(f"{store}/{prefix}".rstrip("/") for store, prefix in stores))
        raise ConfigurationError(f"these are inventories of {names}; growth can be told of one only")
    if len({each.about.began_ns for each in inventories}) < len(inventories):
        raise ConfigurationError("one inventory was given twice")
    return inventories, hold(reduce(DataFrame.unionByName, (_owned(each, hold) for each in inventories)))


def _owned(inventory: Inventory, hold: Hold) -> DataFrame:
    files = located(hold(named(inventory.listed(inventory.about.prefix)))).where("not is_directory")
    owned = files.select(*PLACED.columns).mapInArrow(Owners().own, OWNED.ddl)
    sums = owned.groupBy("owner", "purpose").agg(f.count("*").alias("objects"), f.sum("size_bytes").alias("bytes"))
    return sums.withColumn("began_ns", f.lit(inventory.about.began_ns))


def largest(owned: DataFrame, newest_ns: int, top: int) -> list[Amount]:
    """Return the amounts of the owners that have most in the newest inventory; those of all others as one owner's."""
    latest = owned.where(f.col("began_ns") == newest_ns).groupBy("owner").agg(f.sum("bytes").alias("of_owner"))
    first = latest.orderBy(f.desc("of_owner"), "owner").limit(top).select("owner", f.lit(True).alias("is_shown"))
    shown = owned.join(f.broadcast(first), "owner", "left")
    name = f.when(f.col("is_shown"), f.col("owner")).otherwise(_REST)
    sums = shown.groupBy("began_ns", name.alias("owner"), "purpose").agg(f.sum("objects"), f.sum("bytes"))
    return [Amount(*row) for row in sums.orderBy("began_ns", "owner", "purpose").collect()]


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> None:
    made(options.report.parent)
    with holding() as hold, progress.step("adding up"):
        inventories, owned = amounts(spark, options.inventories, hold)
        about = inventories[-1].about
        found = largest(owned, about.began_ns, options.top)
    times = [each.about.began_ns for each in inventories]
    usage = Usage(f"{about.store}/{about.prefix}".rstrip("/"), times, found)
    try:
        options.report.write_text(report(usage), encoding="utf-8")
    except OSError as problem:
        raise ConfigurationError(f"{options.report} can't be written: {os.strerror(problem.errno or 0)}") from None
    grows = len(times) > 1
    rows = [
        (owner, usage.objects(owner), size(usage.total(owner)), *([_signed(usage.growth(owner))] if grows else []))
        for owner in usage.owners
    ]
    print(table(("owner", "objects", "size", *(["since " + moment(times[0])] if grows else [])), rows))
    print(f"{usage.store} as of {moment(times[-1])}: {size(usage.total())}; the report is {options.report}")


def _signed(size_bytes: int) -> str:
    return f"{'-' if size_bytes < 0 else '+'}{size(abs(size_bytes))}"


if __name__ == "__main__":
    sys.exit(main())
