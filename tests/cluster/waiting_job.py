"""How long a task waits for an executor that has no free core, by Spark's settings: a row of a table for each.

The task prefers its executor as those do that have state (``executor_<host>_<id>``), and nobody else has anything to do.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from holdfast_spark.placement.cluster import Cluster, Executor
from holdfast_spark.placement.fetch_ahead import on_hosts

_EXECUTORS = 3
_TURNS = 3
_WAITS = ((3, 3), (3, 0), (1, 0), (0, 0))
"""Seconds for the executor, then for its host. Spark's own choice comes first."""
_POLL_SECONDS = 0.05
_FOR_EVER_SECONDS = 3600


def main() -> None:
    """Measure with each setting, by turns."""
    spark = SparkSession.builder.appName("waiting").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    cluster = Cluster(spark)
    while len(cluster.executors()) < _EXECUTORS:
        time.sleep(_POLL_SECONDS)
    executor = min(cluster.executors())
    _occupy(spark, executor)
    waited: dict[tuple[int, int], list[float]] = {waits: [] for waits in _WAITS}
    for _ in range(_TURNS):
        for waits in _WAITS:
            waited[waits].append(_wait_seconds(spark, executor, waits))
    print("| for the executor | then for its host | waited |\n|--:|--:|--:|")
    for (for_executor, for_host), seconds in waited.items():
        print(f"| {for_executor} s | {for_host} s | {statistics.median(seconds):.1f} s |", flush=True)
    spark.stop()


def _occupy(spark: SparkSession, executor: Executor) -> None:
    """Keep the executor's core busy to the end of the application; return when it is."""

    def sleep() -> None:
        with suppress(Py4JError):  # the application ends before
            on_hosts(spark, [(_FOR_EVER_SECONDS, executor.host)]).foreach(time.sleep)

    threading.Thread(target=sleep, daemon=True).start()
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    while not any(int(each.activeTasks()) for each in _each(store.executorList(True))):
        time.sleep(_POLL_SECONDS)


def _wait_seconds(spark: SparkSession, executor: Executor, waits: tuple[int, int]) -> float:
    """Run a task that prefers the executor; return the time from the submission of its stage to its launch."""
    context: Any = spark.sparkContext
    for level, seconds in zip(("process", "node"), waits, strict=True):
        context._jsc.sc().conf().set(f"spark.locality.wait.{level}", f"{seconds}s")  # read anew for each stage
    group = uuid.uuid4().hex
    context.setJobGroup(group, "waiting")
    on_hosts(spark, [(0, f"executor_{executor.host}_{executor.id}")]).foreach(time.sleep)
    store, tracker = context._jsc.sc().statusStore(), context.statusTracker()
    (job,) = tracker.getJobIdsForGroup(group)
    (stage,) = tracker.getJobInfo(job).stageIds
    (task,) = _each(store.taskList(stage, 0, 1))
    assert str(task.host()) != executor.host
    submitted = store.lastStageAttempt(stage).submissionTime().get()
    return (int(task.launchTime().getTime()) - int(submitted.getTime())) / 1000


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


if __name__ == "__main__":
    main()
