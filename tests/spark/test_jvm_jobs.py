"""Jobs without Python: by the documented properties alone, their state is on the mount, and is found there again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.spark import programs as spark_programs
from tests.support.spark.properties import documented_properties

pytestmark = pytest.mark.timeout(900)
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDB"
UNNEEDED = "org.apache.spark.graphx.Edge"
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


def test_a_java_job_goes_on_while_the_daemon_is_killed(workspace: Path, make_node: NodeFactory, jar: Path) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    properties = spark_programs.properties_file(workspace, documented_properties(node.mountpoint))
    job = ["--properties-file", str(properties), "--name", "killed", "--class", "Counts", str(jar), "counts", "12"]
    companion = spark_programs.with_companion(workspace, node.socket)
    commits = node.checkpoints / "counts/commits"
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(spark_programs.run, workspace, "bin/spark-submit", *job, variables=companion)
        for batches in (2, 5, 8):
            awaited = commits / str(batches)
            wait_until(lambda: said.done() or awaited.exists(), 300)  # noqa: B023 it is called in this turn
            assert not said.done(), said.result()
            node.kill_daemon()
        assert said.result().split()[-1] == str(node.work / "driver_killed/tmp/spark")
    done = len(list(commits.glob("[0-9]*")))
    assert done >= 12
    query = STATE_OF_A_QUERY.format(location=node.checkpoints / "counts")
    found = spark_programs.run(workspace, "bin/spark-sql", "--properties-file", str(properties), "-e", query)
    assert found.split()[-1] == str(10 * done), "each batch has ten rows, each of a value of its own"


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


def test_a_server_of_spark_connect_loads_the_classes_of_the_one_before_it(workspace: Path, node: Node, jar: Path) -> None:
    loaded, names = workspace / "loaded.log", node.work / "driver_Spark-Connect-server/classes.names"
    options = {"spark.driver.extraJavaOptions": f"{spark_programs.SHORT_JOBS} -Xlog:class+load:file={loaded}"}
    properties = spark_programs.properties_file(workspace, {**documented_properties(node.mountpoint), **options})
    companion = spark_programs.with_companion(workspace, node.socket)
    with spark_programs.connect_server(workspace, properties, companion) as remote:
        job = ["--remote", remote, "--class", "Counts", str(jar), "counts", "4"]
        spark_programs.run(workspace, "bin/spark-submit", *job)
        wait_until(names.exists)
    assert STATE_STORE in names.read_text().splitlines()
    assert f" {UNNEEDED} " not in loaded.read_text()
    names.write_text(f"{names.read_text()}{UNNEEDED}\n")
    with spark_programs.connect_server(workspace, properties, companion):
        wait_until(lambda: f" {UNNEEDED} " in loaded.read_text())
        assert f" {STATE_STORE} " in loaded.read_text(), "nobody has asked this server anything"
