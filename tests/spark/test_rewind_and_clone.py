"""A real query goes on from a rewound checkpoint, an undone rewind and copies, and comes to the batch answer each time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.control.client import ControlClient
from holdfast.control.messages import CloneRequest, RewindRequest, UndoRequest
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.spark.trials import Laid, restart
from tests.support.stores.s3 import Versitygw

PAGE = Path(__file__).parents[2] / "docs/checkpoints.md"
QUERY = "query"
BACK = 2


@pytest.fixture(params=["directory", "s3"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    """A node whose store is a directory, or in S3."""
    if request.param == "directory":
        return make_node().start()
    place: Versitygw = request.getfixturevalue("place")
    node = make_node(checkpoints=place.below("checkpoints").url)
    node.environment.update(place.environment)
    return node.start()


def goes_on(spark: SparkSession, laid: Laid, checkpoint: Path, arrived: int) -> None:
    """Let input arrive twice, and start the query each time: the second start reads what the first has left."""
    for more in (arrived, arrived + 1):
        laid.arrive(more)
        outcome = restart(spark, laid, checkpoint)
        assert not outcome.problem
        assert outcome.answer == laid.batch_answer(spark)


def newest_of(query: Path) -> int:
    return max(int(path.name) for path in (query / "commits").glob("[0-9]*"))


def back(client: ControlClient, query: Path, to: int) -> None:
    plan = client.plan_rewind(RewindRequest(path=str(query), to=to, idle_seconds=0))
    *_, last = client.execute(plan.id)
    assert last.finished


def undo(client: ControlClient, query: Path) -> None:
    *_, last = client.undo_rewind(UndoRequest(path=str(query), idle_seconds=0))
    assert last.finished


@pytest.mark.parametrize(
    ("node", "name"), [("directory", "spark-rocksdb-1-changelog"), ("s3", "spark-rocksdb-2-changelog")], indirect=["node"]
)
def test_a_query_goes_on_from_an_earlier_batch_and_from_copies(
    spark: SparkSession, workspace: Path, node: Node, name: str
) -> None:
    laid = Laid(name, workspace / "laid")
    query = node.checkpoints / QUERY
    shutil.copytree(laid.checkpoint, query)
    newest = newest_of(query)
    with node.client() as client:
        for copy, batch in (("newest", None), ("earlier", newest - BACK)):
            *_, _ = client.clone(CloneRequest(path=str(query), to=str(node.checkpoints / copy), batch=batch))
        back(client, query, newest - BACK)
        goes_on(spark, laid, query, 0)
        goes_on(spark, laid, node.checkpoints / "newest", 2)
        goes_on(spark, laid, node.checkpoints / "earlier", 4)
        back(client, query, newest - BACK + 1)  # what ran since the first rewind is taken back as well
        goes_on(spark, laid, query, 6)
        back(client, query, newest_of(query) - 1)
        undo(client, query)
    goes_on(spark, laid, query, 8)


def file_sink(spark: SparkSession, arrived: Path, checkpoint: Path, output: Path) -> set[int]:
    """Let a query with a file sink come to the end of its input; return what is read of its output."""
    own = spark.newSession()
    own.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 3)
    rows = own.readStream.schema("n int").option("maxFilesPerTrigger", 1).csv(str(arrived))
    writer = rows.writeStream.format("json").option("path", str(output)).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    return {row.n for row in own.read.schema("n int").json(str(output)).collect()}


def test_a_query_with_a_file_sink_goes_on_in_a_new_directory_as_the_documentation_says(
    spark: SparkSession, workspace: Path, make_node: NodeFactory
) -> None:
    """Past the batch that compacts the sink's log, where one without a log dies."""
    new, copied = re.findall(r"```bash\n(.+?)```", PAGE.read_text().partition("### File sinks")[2], re.DOTALL)[:2]
    node, arrived = make_node().start(), workspace / "in"
    query, output = node.checkpoints / QUERY, workspace / "out"
    arrived.mkdir()

    def arrive() -> int:
        """Let a file arrive after all others; return its number."""
        number = len(list(arrived.iterdir()))
        (arrived / f"{number}.csv").write_text(f"{number}\n")
        os.utime(arrived / f"{number}.csv", (number, number))
        return number

    for _ in range(5):
        arrive()
    assert file_sink(spark, arrived, query, output) == set(range(5))
    for recipe, batch in ((new, 4), (copied, 3), (new, 1)):
        clone, to = node.checkpoints / f"copy-{batch}-{recipe is new}", workspace / f"out-{batch}-{recipe is new}"
        with node.client() as client:
            *_, _ = client.clone(CloneRequest(path=str(query), to=str(clone), batch=batch))
        variables = {"FROM": str(output), "TO": str(to), "N": str(batch), "INTERVAL": "3", "PATH": "/usr/bin:/bin"}
        subprocess.run(["bash", "-euc", recipe], env=variables, check=True)
        arrive()
        newest = arrive()
        assert file_sink(spark, arrived, clone, to) == set(range(0 if recipe is copied else batch + 1, newest + 1))
