"""What Spark's coordinator of state stores is told, it knows; and what it knows can be asked."""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession

from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.driver import Executor, Instance, StreamingQuery

HERE, THERE = Executor("0", "node1", 1), Executor("1", "node2", 1)


def stores(executor: Executor, *partitions: int) -> list[Instance]:
    return [Instance(0, partition, store, executor) for partition in partitions for store in ("default", "left-keys")]


def test_a_store_is_where_it_was_told_to_be_until_a_task_claims_it(spark: SparkSession) -> None:
    cluster, run = Cluster(spark), str(uuid.uuid4())
    query = StreamingQuery("q", "file:/checkpoint", "file:/checkpoint/state")
    assert cluster.elsewhere(query, run, stores(HERE, 0, 1)) == 0, "nobody has claimed them"
    assert cluster.tell(query, run, stores(HERE, 0, 1, 2)) == 6
    assert cluster.elsewhere(query, run, stores(HERE, 0, 1, 2)) == 0
    cluster.tell(query, run, stores(THERE, 1))  # as a task there does when it opens them
    assert cluster.elsewhere(query, run, stores(HERE, 0, 1, 2)) == 2
    assert cluster.elsewhere(query, run, stores(THERE, 0, 1)) == 2
