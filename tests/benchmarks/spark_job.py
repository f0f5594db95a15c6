"""One side of the Spark rows, a process of its own: ``python -m tests.benchmarks.spark_job``. It speaks JSON lines.

``{"ready": true}`` once there is a session; the query begins when a line comes on stdin. ``{"done": N, "milliseconds": …}``
for each batch that had input, with the times that Spark tells of its parts. It runs until it is killed.

Two queries: ``flights``, the demo's, over files of flights; and ``keys``, whose state is as large as one likes: each line
``FIRST,COUNT`` of its input stands for so many keys of 128 bytes, and each batch ends with a snapshot of the whole state.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast_spark import state_settings
from holdfast_spark.class_archive import keep_archive, with_archive
from holdfast_spark.class_names import keep_class_names, load_known_classes
from holdfast_spark.jvm_options import JVM_OPTIONS_KEY, with_short_start
from holdfast_spark.pipeline import flights
from holdfast_spark.pipeline.local import stay_on_this_machine
from holdfast_spark.placement import place_state

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "4g",
    "spark.network.timeout": "3600s",  # it is stopped while the other side is measured
}
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_SNAPSHOTS = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}


def main() -> None:
    options = _parser().parse_args()
    stay_on_this_machine()
    os.environ.pop("SPARK_LOCAL_DIRS", None)
    builder = SparkSession.builder.master("local[2]").appName(options.query)
    for key, value in _settings(options).items():
        builder = builder.config(key, value)
    if options.socket is not None:
        load_known_classes(options.local, builder._options)  # as ``configure`` does
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    watcher = _Watcher()
    spark.streams.addListener(watcher)
    if options.socket is not None:
        place_state(spark, options.socket)
        keep_class_names(spark, options.local)
    if options.class_archive:
        keep_archive(spark, options.local)
    _say(ready=True)
    sys.stdin.readline()
    writer = _query(spark, options).outputMode("update").trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", options.checkpoint).start()
    watcher.over.wait()
    query.awaitTermination()  # raises what ended it


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """Return Spark's settings: Holdfast's, but for what is about checkpoints on a mount where they are elsewhere."""
    found = {**_SETTINGS, **state_settings.settings(options.local), **(_SNAPSHOTS if options.query == "keys" else {})}
    if options.class_archive:
        found = with_archive(found, options.local)
    given = dict(setting.split("=", 1) for setting in options.conf)
    if options.socket is not None:
        found = with_short_start(found, given)
        given.pop(JVM_OPTIONS_KEY, None)  # they are in there
    if not options.checkpoint.startswith("file:"):
        del found[_MANAGER]
    return {**found, **given}


def _query(spark: SparkSession, options: argparse.Namespace):  # type: ignore[no-untyped-def]
    if options.query == "flights":

        def write(changed: DataFrame, batch: int) -> None:
            flights.write_batch(changed, batch, options.output)

        return flights.aggregate(flights.arriving(spark, options.input)).writeStream.foreachBatch(write)
    ranges = spark.readStream.schema("first long, count long").option("maxFilesPerTrigger", 1).csv(f"file://{options.input}")
    numbers = ranges.select(f.explode(f.sequence("first", f.col("first") + f.col("count") - 1)).alias("number"))
    keys = numbers.repartition(2).select(f.sha2(f.col("number").cast("string"), 512).alias("key"))
    return keys.groupBy("key").count().writeStream.format("noop")


class _Watcher(StreamingQueryListener):
    """Tells of each batch; ``over`` is set when the query has ended."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 Spark's name
        progress = event.progress
        if progress.numInputRows:
            _say(done=progress.batchId, milliseconds=progress.batchDuration, parts=dict(progress.durationMs))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 Spark's name
        self.over.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_job", description=__doc__)
    parser.add_argument("--query", choices=["flights", "keys"], required=True)
    for name in ("local", "input", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--class-archive", action="store_true")
    parser.add_argument("--checkpoint", required=True, metavar="URL")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    return parser


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
