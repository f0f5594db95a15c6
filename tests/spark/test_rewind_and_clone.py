"""A real query goes on from a rewound checkpoint and from copies, and comes to the batch answer each time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.control.client import ControlClient
from holdfast.control.messages import CloneRequest, RewindRequest
from tests.support.node import Node
from tests.support.spark_trials import Laid, restart

QUERY = "query"
SHAPES = ("spark-rocksdb-1-changelog", "spark-rocksdb-2-changelog")
BACK = 2


def goes_on(spark: SparkSession, laid: Laid, checkpoint: Path, arrived: int) -> None:
    """Let input arrive twice, and start the query each time: the second start reads what the first has left."""
    for more in (arrived, arrived + 1):
        laid.arrive(more)
        outcome = restart(spark, laid, checkpoint)
        assert not outcome.problem
        assert outcome.answer == laid.batch_answer(spark)


def back(client: ControlClient, query: Path, to: int) -> None:
    plan = client.plan_rewind(RewindRequest(path=str(query), to=to, idle_seconds=0))
    *_, last = client.execute(plan.id)
    assert last.finished


@pytest.mark.parametrize("name", SHAPES)
def test_a_query_goes_on_from_an_earlier_batch_and_from_copies(
    spark: SparkSession, workspace: Path, node: Node, remote_files: Path, name: str
) -> None:
    laid = Laid(name, workspace / "laid")
    shutil.copytree(laid.checkpoint, remote_files / QUERY)
    query = node.checkpoints / QUERY
    newest = max(int(path.name) for path in (remote_files / QUERY / "commits").iterdir())
    with node.client() as client:
        for copy, batch in (("newest", None), ("earlier", newest - BACK)):
            *_, _ = client.clone(CloneRequest(path=str(query), to=str(node.checkpoints / copy), batch=batch))
        back(client, query, newest - BACK)
        goes_on(spark, laid, query, 0)
        goes_on(spark, laid, node.checkpoints / "newest", 2)
        goes_on(spark, laid, node.checkpoints / "earlier", 4)
        back(client, query, newest - BACK + 1)  # what ran since the first rewind is taken back as well
    goes_on(spark, laid, query, 6)
