"""How long a task waits for an executor that has no free core, by Spark's settings: a row of a table for each.

The task prefers its executor as those do that have state (``executor_<host>_<id>``), and nobody else has anything to do.
"""

from __future__ import annotations

import statistics
import time
import uuid
from typing import Any

from pyspark.sql import SparkSession

from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.driver import Executor
from holdfast_spark.placement.fetch_ahead import on_hosts
from tests.cluster.occupying import POLL_SECONDS, elements, occupy

_EXECUTORS = 3
_TURNS = 3
_WAITS = ((3, 3), (3, 0), (1, 0), (0, 0))
"""Seconds for the executor, then for its host. Spark's own choice comes first."""


def main() -> None:
    """Measure with each setting, by turns."""
    spark = SparkSession.builder.appName("waiting").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    cluster = Cluster(spark)
    while len(cluster.executors()) < _EXECUTORS:
        time.sleep(POLL_SECONDS)
    executor = min(cluster.executors())
    occupy(spark, executor.host)
    waited: dict[tuple[int, int], list[float]] = {waits: [] for waits in _WAITS}
    for _ in range(_TURNS):
        for waits in _WAITS:
            waited[waits].append(_wait_seconds(spark, executor, waits))
    print("| for the executor | then for its host | waited |\n|--:|--:|--:|")
    for (for_executor, for_host), seconds in waited.items():
        print(f"| {for_executor} s | {for_host} s | {statistics.median(seconds):.1f} s |", flush=True)
    spark.stop()


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
    (task,) = elements(store.taskList(stage, 0, 1))
    assert str(task.host()) != executor.host
    submitted = store.lastStageAttempt(stage).submissionTime().get()
    return (int(task.launchTime().getTime()) - int(submitted.getTime())) / 1000


if __name__ == "__main__":
    main()
