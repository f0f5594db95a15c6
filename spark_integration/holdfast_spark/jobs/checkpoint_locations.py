"""The checkpoint location of each object: the innermost directory above it that names with all marks of a layout show.

The objects are looked at once; after that only their directories are, which are far fewer.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast_spark.jobs.parsed_names import NAMED, Namer


def named(listed: DataFrame, formats: Formats = FORMATS) -> DataFrame:
    """Return a listing (``LISTED``) with what its names say (``NAMED``)."""
    return listed.mapInArrow(Namer(formats).name_all, NAMED.ddl)


def located(objects: DataFrame, formats: Formats = FORMATS, *, damaged: bool = False) -> DataFrame:
    """Return ``NAMED`` rows with ``location``, relative to the root, and ``location_layout``; null for what lies in none.

    With ``damaged`` a location is one that has its layout's ``lasting_marks``, whatever else it has lost.
    """
    claims = objects.where(f.size("claims") > 0).select(
        f.explode(f.arrays_zip("claims", "claim_layouts", "marks")).alias("one")
    )
    of_layout = claims.groupBy(f.col("one.claims").alias("location"), f.col("one.claim_layouts").alias("location_layout"))
    shown = of_layout.agg(f.collect_set("one.marks").alias("marks"))
    needed = [layout.lasting_marks if damaged else layout.marks for layout in formats.locations]
    wanted = f.array([f.array([f.lit(mark) for mark in sorted(marks)]) for marks in needed])
    of_this_layout = f.element_at(wanted, f.col("location_layout").cast("int") + 1)
    whole = shown.where(f.size(f.array_except(of_this_layout, "marks")) == 0)
    locations = whole.groupBy("location").agg(f.min("location_layout").alias("location_layout"))
    above = objects.select("directory").distinct().withColumn("location", f.explode(with_parents(f.col("directory"))))
    innermost = (
        above.join(locations, "location")
        .groupBy("directory")
        .agg(f.max_by(f.struct("location", "location_layout"), f.length("location")).alias("found"))
        .select("directory", "found.location", "found.location_layout")
    )
    return objects.join(innermost, "directory", "left")


def with_parents(directory: Column) -> Column:
    """Return an array of a directory's name and those of all above it, ``""`` included."""
    parts = f.split(directory, "/")
    upper = f.transform(f.sequence(f.lit(1), f.size(parts)), lambda last: f.array_join(f.slice(parts, 1, last), "/"))
    return f.array_union(f.array(f.lit("")), upper)
