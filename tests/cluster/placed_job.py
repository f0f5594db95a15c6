"""A streaming job on the nodes of a cluster, which says where its state partitions ran: one line of JSON at its end.

``{"seconds": 3.1, "hosts": [{"0": "127.0.0.11", …}, …], …}``: from ``start()`` to the end of the first batch, and for each
stage with state in it the host of each partition in the first batch.

With ``--follow DIRECTORY`` a line for each batch comes before, and the job goes on until there is a file ``stop`` in that
directory. While there is a file ``hold``, the tasks with state wait, after they have told so there (``waiting-…``).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast_spark import checkpoint_location, configure
from tests.cluster.occupying import POLL_SECONDS, elements, occupy


def main() -> None:
    """Run some batches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="of the query")
    parser.add_argument("--kind", choices=sorted(_KINDS), default="aggregation")
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1200, help="new keys a batch")
    parser.add_argument("--row-bytes", type=int, default=1000)
    parser.add_argument("--sources", type=int, default=3, help="partitions of the source (default 3)")
    parser.add_argument("--follow", type=Path, metavar="DIRECTORY", help="that all nodes see")
    parser.add_argument("--every", type=float, default=0.0, metavar="SECONDS", help="at which batches begin")
    parser.add_argument("--busy", metavar="HOST", help="whose only core does something else all the time")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("holdfast.placement").setLevel(logging.INFO)
    builder = configure(SparkSession.builder.appName(options.name), name=options.name)
    for setting in options.conf:
        key, _, value = setting.partition("=")
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _wait_for_executors(spark)
    if options.busy:
        occupy(spark, options.busy)
    began = time.monotonic()
    found = _KINDS[options.kind](_rows(spark, options.rows, options.row_bytes, options.sources))
    query = (
        (found if options.follow is None else found.where(_let_through(options.follow)(f.col("key"))))
        .writeStream.format("noop")
        .trigger(processingTime=f"{options.every} seconds")
        .outputMode("append" if options.kind == "join" else "update")
        .option("checkpointLocation", checkpoint_location(options.name))
        .start()
    )
    seconds, hosts = 0.0, None
    done, told = 0, -1
    while done < options.batches or (options.follow is not None and not (options.follow / "stop").exists()):
        batches = [each for each in query.recentProgress if each.numInputRows]
        done = len(batches)
        if options.follow is not None:
            told = _tell(batches, told)
        if done and hosts is None:
            seconds, hosts = time.monotonic() - began, list(_hosts(spark, str(query.runId)))
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(POLL_SECONDS)
    query.stop()
    last = query.lastProgress
    print(json.dumps({"seconds": round(seconds, 2), "hosts": hosts, "batch": last.batchId if last else -1}), flush=True)
    spark.stop()


def _tell(batches: Sequence[Any], told: int) -> int:
    """Print a line for each batch after the last one that was told of; return the newest."""
    for each in batches:
        if each.batchId > told:
            told = each.batchId
            seconds = each.durationMs["triggerExecution"] / 1000
            print(json.dumps({"batch": told, "seconds": seconds, "at": time.time()}), flush=True)
    return told


def _let_through(directory: Path) -> Any:
    """Return a filter of rows that are the result of state: it lets all through, once nobody holds them up."""

    def let_through(_key: int) -> bool:
        if (directory / "hold").exists():
            (directory / f"waiting-{os.environ['SPARK_LOCAL_HOSTNAME']}").touch()
            while (directory / "hold").exists():
                time.sleep(POLL_SECONDS)
        return True

    return f.udf(let_through, "boolean").asNondeterministic()  # or Spark filters the rows that arrive, before there is state


def _rows(spark: SparkSession, rows: int, row_bytes: int, sources: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", sources).load()
    payload = f.array_join(f.transform(f.sequence(f.lit(1), f.lit(max(1, row_bytes // 64))), _noise), "")
    return source.select("timestamp", f.col("value").alias("key"), payload.alias("payload"))


def _noise(number: Any) -> Any:
    return f.sha2(f.concat_ws("-", f.col("value"), number), 256)


def _aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(f.max("payload").alias("payload"), f.count("*").alias("count"))


def _join(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("timestamp", "100 days")
    right = left.select(f.col("key").alias("other"), f.col("timestamp").alias("at"), f.col("payload").alias("theirs"))
    return left.join(
        right, (f.col("key") == f.col("other")) & (f.col("at") <= f.col("timestamp") + f.expr("INTERVAL 1 HOUR"))
    )


def _transform(rows: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Keep(StatefulProcessor):
        """Keeps the last payload of each key."""

        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("payload", "payload string")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            import pandas as pd  # type: ignore[import-untyped]

            for each in rows:
                self._state.update((each["payload"].iloc[-1],))
            yield pd.DataFrame({"key": [key[0]]})

        def close(self) -> None:
            """Nothing is open."""

    grouped: Any = rows.groupBy("key")
    kept: DataFrame = grouped.transformWithStateInPandas(Keep(), "key long", "Update", "None")
    return kept


_KINDS = {"aggregation": _aggregation, "join": _join, "transform": _transform}


def _wait_for_executors(spark: SparkSession) -> None:
    """Wait until there are as many cores as the cluster has, so that a test knows what there is."""
    context: Any = spark.sparkContext
    while context._jsc.sc().getExecutorIds().size() < int(spark.conf.get("spark.holdfast.executors", "1") or 1):
        time.sleep(POLL_SECONDS)


def _hosts(spark: SparkSession, run_id: str) -> Iterator[dict[int, str]]:
    """Yield, for each stage of a query's run with as many tasks as there are state partitions, where they ran."""
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    tracker, context = spark.sparkContext.statusTracker(), spark.sparkContext
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(run_id))]
    store: Any = context._jsc.sc().statusStore()
    for stage in sorted({int(stage) for job in jobs if job is not None for stage in job.stageIds}):
        about = tracker.getStageInfo(stage)
        if about is not None and about.numTasks == partitions:
            tasks = elements(store.taskList(stage, about.currentAttemptId, partitions))
            yield dict(sorted((int(task.index()), str(task.host())) for task in tasks))


if __name__ == "__main__":
    main()
