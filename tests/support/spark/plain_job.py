"""A streaming job that knows nothing of Holdfast: a count by key, one batch. It prints where Spark keeps its local files."""

from __future__ import annotations

from pyspark.sql import SparkSession


def main() -> None:
    spark = SparkSession.builder.appName("plain job").getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = rows.groupBy("value").count().writeStream.queryName("counts").format("noop").outputMode("update")
    counts.trigger(availableNow=True).start().awaitTermination()
    print(spark.conf.get("spark.local.dir", None), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
