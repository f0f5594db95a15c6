"""List a store into Parquet: what is in it, how large, since when.

The listing is divided by prefixes and done by the executors. All other jobs work from inventories; an old one does no harm,
for a plan that was made of it is made anew before anything is deleted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from holdfast_spark.jobs.formatting import counted, moment, size
from holdfast_spark.jobs.inventory_files import take
from holdfast_spark.jobs.job_command import add_store, address_of, parser_of, parts_of, positive, run
from holdfast_spark.jobs.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("inventory", __doc__)
    add_store(parser)
    parser.add_argument("inventory", metavar="INVENTORY", help="a directory to be made, by any URL or path that Spark knows")
    parser.add_argument("--prefix", default="", help="list only what lies below this directory of the store")
    parser.add_argument("--parts", type=positive, help="by how many tasks (default: four for each core)")
    return run("inventory", _job, parser, arguments)


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> None:
    address = address_of(options)
    with progress.step("listing"):
        inventory = take(spark, address, options.prefix.strip("/"), options.inventory, parts_of(spark, options.parts))
    about = inventory.about
    where = f"{about.store}/{about.prefix}".rstrip("/")
    directories = f" in {counted(about.directories, 'directory', 'directories')}" if about.directories else ""
    print(
        f"{where}: {counted(about.objects, 'object')}{directories}, {size(about.size_bytes)}, as of {moment(about.began_ns)}"
    )


if __name__ == "__main__":
    sys.exit(main())
