"""A node that has come has its partitions' state before their first task runs there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_spark.placement.fetch_ahead import fetch_ahead
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.spark.trials import Laid, restart
from tests.support.stores.s3 import Versitygw

QUERY = "query"
STATE_FETCHED = re.compile(r"s3_GetObject .*/state/\S+\.(?:changelog|zip|sst)(?!\.crc)")
"""Without Spark's checksum files, which ``configure`` turns off."""


def on_s3(make_node: NodeFactory, name: str, place: Versitygw) -> Node:
    node = make_node(name, checkpoints=place.below("checkpoints").url, blobs=place.below("blobs").url)
    node.environment.update(place.environment)
    return node.start()


def state_fetched(place: Versitygw) -> int:
    """Return how many state files have been asked of the store since ``clear_log``."""
    return sum(1 for line in place.access_log.read_text(errors="replace").splitlines() if STATE_FETCHED.search(line))


@pytest.mark.parametrize("name", ["spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog"])
def test_what_was_fetched_ahead_is_all_that_the_first_task_reads(
    spark: SparkSession, workspace: Path, make_node: NodeFactory, place: Versitygw, name: str
) -> None:
    laid = Laid(name, workspace / "laid")
    first = on_s3(make_node, "first", place)
    shutil.copytree(laid.checkpoint, first.checkpoints / QUERY)
    come = on_s3(make_node, "come", place)
    place.clear_log()
    assert fetch_ahead(spark, come.checkpoints / QUERY, {"localhost": [0]}) > 0
    assert state_fetched(place) > 0
    place.clear_log()
    laid.arrive()
    assert restart(spark, laid, come.checkpoints / QUERY).answer == laid.batch_answer(spark)
    assert state_fetched(place) == 0
