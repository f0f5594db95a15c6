"""A node that has come has its partitions' state before their first task runs there, and a lost one before its driver's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.control.messages import HoldingsReply
from holdfast_spark.placement.driver import StreamingQuery
from holdfast_spark.placement.fetch_ahead import fetch_ahead
from holdfast_spark.placement.local_state import LocalState
from tests.conftest import NodeFactory
from tests.support.checkpoints.fetched_state import count_state
from tests.support.daemons.node import Node, wait_until
from tests.support.spark.trials import Laid, restart
from tests.support.stores.s3 import Versitygw

QUERY = "query"


def on_s3(make_node: NodeFactory, name: str, place: Versitygw) -> Node:
    node = make_node(name, checkpoints=place.below("checkpoints").url, blobs=place.below("blobs").url)
    node.environment.update(place.environment)
    return node.start()


def stored(name: str, workspace: Path, make_node: NodeFactory, place: Versitygw) -> Laid:
    """Return a checkpoint that a node has put into the store."""
    laid = Laid(name, workspace / "laid")
    shutil.copytree(laid.checkpoint, on_s3(make_node, "first", place).checkpoints / QUERY)
    return laid


def state_fetched(place: Versitygw) -> int:
    """Return how many state files have been asked of the store since ``clear_log``."""
    return count_state(place.fetched())


@pytest.mark.parametrize("name", ["spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog"])
def test_what_was_fetched_ahead_is_all_that_the_first_task_reads(
    spark: SparkSession, workspace: Path, make_node: NodeFactory, place: Versitygw, name: str
) -> None:
    laid = stored(name, workspace, make_node, place)
    come = on_s3(make_node, "come", place)
    place.clear_log()
    assert fetch_ahead(spark, come.checkpoints / QUERY, {"localhost": [0]}) > 0
    assert state_fetched(place) > 0
    place.clear_log()
    laid.arrive()
    assert restart(spark, laid, come.checkpoints / QUERY).answer == laid.batch_answer(spark)
    assert state_fetched(place) == 0


@pytest.mark.parametrize("name", ["spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog"])
def test_a_driver_that_runs_its_tasks_itself_has_all_state_fetched_when_a_query_starts(
    spark: SparkSession, workspace: Path, make_node: NodeFactory, place: Versitygw, name: str
) -> None:
    laid = stored(name, workspace, make_node, place)
    lost = on_s3(make_node, "lost", place)
    location = lost.checkpoints / QUERY
    driver: Any = SimpleNamespace(query=lambda _: StreamingQuery("id", f"file:{location}", f"file:{location}/state"))
    state = LocalState(driver, holdings_of(lost))
    place.clear_log()
    state.begin("id", "run", 0.0)
    wait_until(lambda: lost.status().fetching == 0)
    assert state_fetched(place) > 0
    place.clear_log()
    state.begin("id", "run", 0.0)
    assert place.requests() == {}, "what is here costs a question to the daemon"
    laid.arrive()
    assert restart(spark, laid, location).answer == laid.batch_answer(spark)
    assert state_fetched(place) == 0


def holdings_of(node: Node) -> Callable[[str], HoldingsReply]:
    def ask(path: str) -> HoldingsReply:
        with node.client() as client:
            return client.holdings(path)

    return ask
