"""A Python job without a line of Holdfast's: ``spark-submit`` runs it by ``holdfast-pyspark``, as a properties file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons.node import Node
from tests.support.spark import plain_job
from tests.support.spark import programs as spark_programs
from tests.support.spark.properties import documented_properties

pytestmark = pytest.mark.timeout(900)


def submitted(workspace: Path, socket: Path, properties: dict[str, str]) -> str:
    """Run the job by ``spark-submit``; return where Spark has its local files: the job's last line."""
    python = str(spark_programs.driver_python(workspace))
    file = spark_programs.properties_file(workspace, {**properties, "spark.pyspark.driver.python": python})
    job = ["--properties-file", str(file), plain_job.__file__]
    said = spark_programs.run(workspace, "bin/spark-submit", *job, variables={"HOLDFAST_SOCKET": str(socket)})
    return said.splitlines()[-1]


def test_a_job_that_knows_nothing_of_holdfast_is_set_up_all_the_same(workspace: Path, node: Node) -> None:
    local = submitted(workspace, node.socket, documented_properties(node.mountpoint))
    assert local == str(node.mountpoint / "work/driver_plain-job/tmp/spark")
    with node.client() as client:
        assert client.batches("counts")
    assert list((node.checkpoints / "counts/state/0").glob("*/1_*.changelog"))


def test_it_runs_without_a_daemon_as_it_would_without_holdfast(workspace: Path) -> None:
    own = {"spark.sql.streaming.checkpointLocation": f"file://{workspace}/checkpoints"}
    assert submitted(workspace, workspace / "nobody/control.sock", own) == "None"
    assert list((workspace / "checkpoints/counts/state/0").glob("*/1.delta"))
