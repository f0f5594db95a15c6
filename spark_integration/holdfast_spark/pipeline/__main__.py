"""``python -m holdfast_spark.pipeline``: run the streaming query until as many batches are done as are asked for.

It says what happens as JSON lines on stdout: ``{"entered": N}`` when batch N is to be computed and its result
written, ``{"done": N, "rows": …, "milliseconds": …}`` when it is committed.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast_spark.pipeline import flights
from holdfast_spark.pipeline.local import stay_on_this_machine
from holdfast_spark.session import checkpoint_location, configure


def main() -> None:
    """Run the pipeline."""
    options = _parser().parse_args()
    stay_on_this_machine()
    spark = _session(options)
    watcher = _Watcher(options.until)
    spark.streams.addListener(watcher)
    query = _start(spark, options)
    try:
        watcher.over.wait()
        if query.exception() is not None:
            query.awaitTermination()  # raises the error of the query
    finally:
        query.stop()
        spark.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast_spark.pipeline", description=__doc__)
    parser.add_argument("--input", type=Path, required=True, help="the directory in which files arrive")
    parser.add_argument("--output", type=Path, required=True, help="the directory for the result of each batch")
    parser.add_argument("--name", default="flights", help="name of query, checkpoint and working directory")
    parser.add_argument("--until", type=int, required=True, help="the last batch to run, counted from 0")
    parser.add_argument("--master", help="Spark's master (default: this process, on two cores)")
    parser.add_argument("--socket", help="the daemon's control socket")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's, stronger than Holdfast's"
    )
    return parser


def _session(options: argparse.Namespace) -> SparkSession:
    builder = SparkSession.builder.master(options.master or "local[2]").appName(options.name)
    builder = configure(builder, name=options.name, socket=options.socket)
    for key, value in (
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.sql.shuffle.partitions", "4"),
        *(setting.split("=", 1) for setting in options.conf),
    ):
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    def write(changed: DataFrame, batch: int) -> None:
        _say(entered=batch)
        flights.write_batch(changed, batch, options.output)

    return (
        flights.aggregate(flights.arriving(spark, options.input))
        .writeStream.queryName(options.name)
        .outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", checkpoint_location(options.name, options.socket))
        .trigger(processingTime="0 seconds")
        .start()
    )


class _Watcher(StreamingQueryListener):
    """Reports each batch once it is committed. ``over`` is set after batch ``until``, or when the query has ended."""

    def __init__(self, until: int) -> None:
        self.over = threading.Event()
        self._until = until

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 Spark's name
        """Report a batch that had input."""
        progress = event.progress
        if progress.numInputRows:
            _say(done=progress.batchId, rows=progress.numInputRows, milliseconds=progress.batchDuration)
            if progress.batchId >= self._until:
                self.over.set()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802, ARG002 Spark's name
        """Let the main thread check how the query ended."""
        self.over.set()


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


main()
