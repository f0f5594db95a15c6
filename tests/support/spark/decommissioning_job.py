"""A driver that decommissions one of its two executors, which has a task to end first, and then kills it: a line for each
says who gets tasks then, and that its end was heard of.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from holdfast_spark.placement.cluster import Cluster
from tests.support.daemons.node import wait_until

_FOR_EVER_SECONDS = 600
_START_SECONDS = 240.0


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    cluster = Cluster(spark)
    wait_until(lambda: len(cluster.executors()) == 2, _START_SECONDS)
    context: Any = spark.sparkContext
    assert {executor.node for executor in cluster.executors()} == {"a-node"}  # as a pod's environment would have it
    threading.Thread(target=_stay_busy, args=(spark,), daemon=True).start()
    wait_until(lambda: len(context.statusTracker().getActiveStageIds()) == 1, _START_SECONDS)
    leaving, staying = cluster.executors()
    why = context._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", context._jvm.scala.Option.empty())
    assert context._jsc.sc().schedulerBackend().decommissionExecutor(leaving.id, why, False, False)
    assert cluster.executors() == [staying]
    print("only the other one gets tasks", flush=True)
    cluster.prepare()
    context._jsc.sc().killExecutor(leaving.id)
    wait_until(lambda: cluster.lost(0) == leaving.id, _START_SECONDS)
    print("its end was heard of", flush=True)
    spark.stop()


def _stay_busy(spark: SparkSession) -> None:
    with suppress(Exception):  # the driver ends before, and Spark and Py4J each say so in ways of their own
        spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(_FOR_EVER_SECONDS))


if __name__ == "__main__":
    main()
