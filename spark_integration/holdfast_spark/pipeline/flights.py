"""The query: for each aircraft and each route, how many flights, how many miles, how many minutes late.

All sums are of integers, so a streaming answer and a batch answer are equal or wrong, with nothing in between.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

_SCHEMA = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,
    air_time int, distance int, hour int, minute int, time_hour string"""


def aggregate(flights: DataFrame) -> DataFrame:
    """Return the answer over ``flights``: columns subject, flights, miles, minutes_late, latest."""
    aircraft = f.concat(f.lit("aircraft "), f.coalesce(f.col("tailnum"), f.lit("unknown")))
    route = f.concat(f.lit("route "), f.col("origin"), f.lit("-"), f.col("dest"))
    return (
        flights.select(f.explode(f.array(aircraft, route)).alias("subject"), "distance", "arr_delay", "time_hour")
        .groupBy("subject")
        .agg(
            f.count("*").alias("flights"),
            f.sum(f.col("distance").cast("long")).alias("miles"),
            f.sum(_late("arr_delay")).alias("minutes_late"),
            f.max("time_hour").alias("latest"),
        )
    )


def arriving(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the flights of the files that arrive in ``directory``, one file a batch."""
    reader = spark.readStream.schema(_SCHEMA).option("header", "true").option("maxFilesPerTrigger", 1)
    return reader.option("nullValue", "NA").csv(f"file://{directory}")


def arrived(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the flights of all files in ``directory``."""
    return spark.read.schema(_SCHEMA).option("header", "true").option("nullValue", "NA").csv(f"file://{directory}")


def write_batch(changed: DataFrame, batch: int, directory: Path) -> None:
    """Write the changes of a batch, a file for each partition; a repeated batch replaces them.

    One file, by ``coalesce(1)``, would put all partitions of the state into one task.
    """
    changed.write.mode("overwrite").parquet(f"file://{directory}/batch={batch}")


def latest(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the answer that the batches in ``directory`` add up to: the newest row of each subject."""
    newest = Window.partitionBy("subject").orderBy(f.col("batch").desc())
    batches = spark.read.option("basePath", f"file://{directory}").parquet(f"file://{directory}/batch=*")
    return batches.withColumn("rank", f.row_number().over(newest)).where("rank = 1").drop("rank", "batch")


def _late(name: str) -> Column:
    return f.greatest(f.coalesce(f.col(name), f.lit(0)), f.lit(0)).cast("long")
