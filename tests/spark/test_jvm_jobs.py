"""Jobs without Python: by the documented properties alone, their state is on the mount, and is found there again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import spark_programs
from tests.support.node import Node, wait_until
from tests.support.spark_properties import documented_properties

pytestmark = pytest.mark.timeout(900)
STATE_OF_A_QUERY = """
CREATE TEMPORARY VIEW counted USING statestore OPTIONS (path 'file://{location}');
SELECT count(*) FROM counted;
"""


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spark_programs.jar_of("Counts", tmp_path_factory.mktemp("jar"))


@pytest.fixture
def properties(workspace: Path, node: Node) -> Path:
    return spark_programs.properties_file(workspace, documented_properties(node.mountpoint))


def has_kept_its_state(location: Path, batches: int) -> bool:
    """Say whether the query has so many batches, and state of format 2 without checksum files."""
    state = [path for path in location.glob("state/0/[0-9]*/*") if path.is_file() and not path.name.startswith(".")]
    return (
        len(list((location / "commits").glob("[0-9]*"))) == batches
        and {path.suffix for path in state} <= {".changelog", ".zip"}
        and all("_" in path.name for path in state)
    )


def test_a_java_job_finds_its_state_again_and_sql_reads_it(workspace: Path, node: Node, properties: Path, jar: Path) -> None:
    job = ["--properties-file", str(properties), "--name", "java job", "--class", "Counts", str(jar), "counts"]
    with_companion = spark_programs.with_companion(workspace, node.socket)
    for batches in (1, 2):
        said = spark_programs.run(workspace, "bin/spark-submit", *job, variables=with_companion)
        assert said.split()[-1] == str(node.work / "driver_java-job/tmp/spark")
        assert has_kept_its_state(node.checkpoints / "counts", batches)
        with node.client() as client:
            assert [each.batch for each in client.batches("counts")] == list(range(batches))
    assert node.status().counters["bytes_fetched"] == 0
    query = STATE_OF_A_QUERY.format(location=node.checkpoints / "counts")
    said = spark_programs.run(workspace, "bin/spark-sql", "--properties-file", str(properties), "-e", query)
    assert said.split()[-1] == "20"


def test_a_client_of_spark_connect_has_its_state_on_the_servers_mount(
    workspace: Path, node: Node, properties: Path, jar: Path
) -> None:
    """The server has a working directory, and what its sessions do is reported."""
    companion = spark_programs.with_companion(workspace, node.socket)
    with spark_programs.connect_server(workspace, properties, companion) as remote:
        job = ["--remote", remote, "--class", "Counts", str(jar), "counts"]
        said = spark_programs.run(workspace, "bin/spark-submit", *job)
        assert said.split()[-1] == str(node.work / "driver_Spark-Connect-server/tmp/spark")
        with node.client() as client:
            wait_until(lambda: [each.batch for each in client.batches("counts")] == [0])
    assert has_kept_its_state(node.checkpoints / "counts", 1)
