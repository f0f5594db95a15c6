"""Which checkpoint location of Spark's each object lies in: the innermost above it that has ``metadata`` and a log.

The objects are looked at once; after that only their directories are, which are far fewer.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from holdfast_spark.jobs.naming import NAMED, name_all


def named(listed: DataFrame) -> DataFrame:
    """Return a listing (``LISTED``) with what its names say (``NAMED``)."""
    return listed.mapInArrow(name_all, NAMED.ddl)


def located(objects: DataFrame) -> DataFrame:
    """Return ``NAMED`` rows with a column ``location``, relative to the root; null for what lies in none."""
    claimed = objects.where(f.col("claims").isNotNull()).groupBy(f.col("claims").alias("location"))
    both = claimed.agg(f.bool_or("claims_metadata").alias("by_metadata"), f.bool_and("claims_metadata").alias("by_no_log"))
    locations = both.where("by_metadata and not by_no_log").select("location")
    above = objects.select("directory").distinct().withColumn("location", f.explode(with_parents(f.col("directory"))))
    innermost = (
        above.join(locations, "location", "left_semi")
        .groupBy("directory")
        .agg(f.max_by("location", f.length("location")).alias("location"))
    )
    return objects.join(innermost, "directory", "left")


def with_parents(directory: Column) -> Column:
    """Return an array of a directory's name and those of all above it, ``""`` included."""
    parts = f.split(directory, "/")
    upper = f.transform(f.sequence(f.lit(1), f.size(parts)), lambda last: f.array_join(f.slice(parts, 1, last), "/"))
    return f.array_union(f.array(f.lit("")), upper)
