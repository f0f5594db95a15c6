"""Say which batches, checkpoints and savepoints of an inventory can be restored, and why others can't.

The verdicts are those of ``holdfast checkpoint verify``; with the results of a scrub those of ``--deep``. It exits with 3 if
something can't be restored, and with 4 if that is the newest of a query or a job.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.checkpoints.formats.interface import EngineVersion, Role
from holdfast.checkpoints.restoring.object_checks import Outcome
from holdfast.system.text import printable
from holdfast_spark.arrow_forms import LISTED
from holdfast_spark.jobs.checkpoint_locations import located, named
from holdfast_spark.jobs.computed_once import holding
from holdfast_spark.jobs.formatting import table
from holdfast_spark.jobs.job_command import add_store_and_inventory, parser_of, run, store_and_inventory
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.jobs.restore_judges import FOUND, NEEDED, VERDICT, RestoreJudge
from holdfast_spark.jobs.scrub import results

SOME_CANNOT = 3
NEWEST_CANNOT = 4
_SHOWN = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("verify", __doc__)
    add_store_and_inventory(parser)
    parser.add_argument(
        "--root", default="", help="the directory to be verified; wide enough for all that refer to each other"
    )
    parser.add_argument("--scrubbed", metavar="RESULTS", help="what the job scrub found of the same inventory")
    parser.add_argument(
        "--spark",
        type=_version,
        metavar="VERSION",
        help="the Spark that would restart the queries, as 3.5; default: the newest",
    )
    parser.add_argument("--table", help="write all verdicts as Parquet, to this directory")
    return run("verify", _job, parser, arguments)


def verdicts(listed: DataFrame, judge: RestoreJudge) -> DataFrame:
    """Judge a listing (``arrow_forms.LISTED``): ``VERDICT``."""
    objects = located(named(listed, judge.formats), judge.formats, damaged=True)
    of_locations = (
        objects.where("location is not null and not is_directory")
        .select("location", "location_layout", *LISTED.columns)
        .groupBy("location", "location_layout")
        .applyInArrow(lambda key, rows: judge.location(key, rows), VERDICT.ddl)
    )
    return of_locations.unionByName(_of_trees(objects.where("location is null"), judge))


def _of_trees(outside: DataFrame, judge: RestoreJudge) -> DataFrame:
    """Judge checkpoints and savepoints by what their manifests refer to: ``VERDICT``."""
    manifests = outside.where((f.col("role") == Role.MANIFEST.value) & ~f.col("is_directory"))
    tasks = outside.sparkSession.sparkContext.defaultParallelism
    columns = [*LISTED.columns, "layout", "unit", "completes"]
    needed = manifests.select(*columns).repartition(tasks).mapInArrow(judge.needed, NEEDED.ddl)
    files = outside.where("not is_directory").withColumn("component", f.substring_index("name", "/", -1))
    spoilt = f.col("name").isin([each.decode() for each in judge.spoilt])
    there = files.groupBy("component").agg(
        f.min("size_bytes").alias("least"), f.max(spoilt).alias("spoilt"), f.min_by("name", "size_bytes").alias("file")
    )
    why = (
        f.when(f.col("because").isNotNull(), f.col("because"))
        .when(f.col("component").isNull() | f.col("is_directory"), None)
        .when(f.col("least").isNull(), f.concat("component", f.lit(": it is not there")))
        .when(f.col("spoilt"), f.concat("component", f.lit(": its bytes are not those that its digest was made of")))
        .when(
            f.col("least") < f.col("least_bytes"),
            f.concat("component", f.lit(": it has "), "least", f.lit(" bytes instead of "), "least_bytes"),
        )
    )
    found = needed.join(there, "component", "left").select(*FOUND.columns)
    judged = found.mapInArrow(judge.lengths, FOUND.ddl).withColumn("why", why)
    newest = manifests.groupBy("layout", "unit").agg(f.max("completes").alias("newest"))
    return (
        judged.groupBy("layout", "unit", "number", "name", "what")
        .agg(f.count("component").alias("files"), f.count("why").alias("broken"), f.min("why").alias("because"))
        .join(newest, ["layout", "unit"], "left")
        .select(
            "name",
            "what",
            f.lit(False).alias("is_expired"),
            f.coalesce(f.col("number") == f.col("newest"), f.lit(False)).alias("is_newest"),
            "files",
            "broken",
            "because",
        )
    )


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    address, inventory = store_and_inventory(spark, options)
    root = options.root.strip("/")
    judge = RestoreJudge(address, root, _spoilt(spark, options.scrubbed, root), engine=options.spark)
    with holding() as hold:
        with progress.step("judging"):
            found = hold(verdicts(inventory.listed(root), judge))
        if options.table:
            found.write.mode("error").parquet(options.table)
        return _tell(found)


def _version(text: str) -> EngineVersion:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def _spoilt(spark: SparkSession, scrubbed: str | None, root: str) -> frozenset[bytes]:
    """Return the corrupt objects below the root: as few as there are."""
    if scrubbed is None:
        return frozenset()
    prefix = f"{root}/" if root else ""
    rows = results(spark, scrubbed).where(f.col("outcome") == Outcome.CORRUPT.value).select("key").collect()
    return frozenset(row.key[len(prefix) :].encode() for row in rows if row.key.startswith(prefix))


def _tell(found: DataFrame) -> int:
    is_bad = (f.col("broken") > 0) & ~f.col("is_expired")
    counts = found.agg(
        f.count("*").alias("all"),
        f.coalesce(f.sum(f.col("is_expired").cast("int")), f.lit(0)).alias("expired"),
        f.count(f.when(is_bad, 1)).alias("bad"),
        f.count(f.when(is_bad & f.col("is_newest"), 1)).alias("bad_newest"),
    ).collect()[0]
    bad = found.where(is_bad).orderBy("name").limit(_SHOWN).collect()
    rows = [("no, newest" if row.is_newest else "no", row.files, printable(row.name), printable(row.because)) for row in bad]
    if rows:
        print(table(("restorable", "files", "name", "because"), rows))
    if counts.bad > len(rows):
        print(f"… and {counts.bad - len(rows)} more")
    left = counts.all - counts.expired
    print(f"{left - counts.bad} of {left} can be restored" + (f"; {counts.expired} expired" if counts.expired else ""))
    return NEWEST_CANNOT if counts.bad_newest else SOME_CANNOT if counts.bad else 0


if __name__ == "__main__":
    sys.exit(main())
