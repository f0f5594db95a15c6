"""Starts of ``placed_job`` on a cluster, each with a new driver: where partitions ran, and what was fetched."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.messages import HoldingsInfo
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.cluster.plans import JAR
from tests.cluster.settings import MOUNTPOINT, TOOLS
from tests.support.daemons.node import wait_until
from tests.support.spark.programs import CONNECT_SERVER, CONNECT_SERVER_STARTED
from tests.support.spark.properties import documented_properties
from tests.support.stores.servers import free_port

_JOB = str(TOOLS / "checkout/tests/cluster/placed_job.py")
_START_SECONDS = 300.0
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # halves what short jobs take
_CONFS = {
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "600m",
}


@dataclass(frozen=True)
class Start:
    """What one driver came to: ``seconds`` to the end of its first batch, whose stages with state ran on ``hosts``."""

    seconds: float
    hosts: list[dict[str, str]]
    batch: int

    def balances(self) -> list[list[int]]:
        """Return, for each stage with state, how many partitions the hosts had, in their order."""
        return [[count for _, count in sorted(Counter(stage.values()).items())] for stage in self.hosts]


def start(cluster: Cluster, name: str, *arguments: str, executors: int, confs: Sequence[str] = ()) -> Start:
    """Run the job ``name`` with a new driver, once there are so many executors. Raises ``AssertionError`` if it fails."""
    said = cluster.nodes[0].run(*command(name, *arguments, executors=executors, confs=confs))
    return Start(**json.loads(said.splitlines()[-1]))


def command(name: str, *arguments: str, executors: int, confs: Sequence[str] = ()) -> list[str]:
    """Return the command that runs the job ``name`` on a node."""
    settings = [f"spark.holdfast.executors={executors}", *(f"{key}={value}" for key, value in _CONFS.items()), *confs]
    return ["python", _JOB, name, *arguments, *(word for setting in settings for word in ("--conf", setting))]


def start_java(cluster: Cluster, jar: Path, name: str, rows: int, row_bytes: int, executors: int) -> Start:
    """Run the Java job ``Placed`` of ``jar`` as the query ``name``, by the documented properties alone."""
    properties = {**documented_properties(MOUNTPOINT, JAR), **_CONFS}
    words = [word for key, value in properties.items() for word in ("--conf", f"{key}={value}")]
    job = ("--class", "Placed", str(jar), name, str(rows), str(row_bytes), str(executors))
    said = cluster.nodes[0].run("spark-submit", "--name", name, *words, *job)
    return Start(**json.loads(said.splitlines()[-1]))


@contextmanager
def connect_server(cluster: Cluster, executors: int) -> Iterator[str]:
    """Run Spark Connect's server on the first node, by the documented properties alone, until the block ends.

    It has all its executors, of one core each, before it listens. Gives the address for clients on that node.
    """
    node, port = cluster.nodes[0], free_port()
    properties = {
        **documented_properties(MOUNTPOINT, JAR),
        **_CONFS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.cores.max": str(executors),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    words = [word for key, value in properties.items() for word in ("--conf", f"{key}={value}")]
    log = cluster.directory / f"connect-{port}.log"
    with log.open("wb") as stream:
        memory = f"SPARK_DAEMON_MEMORY={_CONFS['spark.driver.memory']}"  # not the driver's, for this class
        command = node.command("env", memory, "spark-submit", "--class", CONNECT_SERVER, "--name", "connect", *words)
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        wait_until(lambda: server.poll() is not None or CONNECT_SERVER_STARTED in log.read_text(), _START_SECONDS)
        assert server.poll() is None, log.read_text()[-3000:]
        yield f"sc://localhost:{port}"
    finally:
        node.kill_programs(CONNECT_SERVER)
        server.wait()


def run_connected(cluster: Cluster, remote: str, jar: Path, name: str) -> None:
    """Run the Java job ``Counts`` of ``jar`` as the query ``name``, by a client of the server at ``remote``."""
    settings = cluster.shared / "client.conf"
    settings.write_text("spark.driver.memory 600m\n")  # in the place of the node's own file, which names a master
    job = ("--properties-file", str(settings), "--remote", remote, "--class", "Counts", str(jar), name)
    cluster.nodes[0].run("spark-submit", *job)


def held(cluster: Cluster, name: str) -> dict[str, dict[int, int]]:
    """Return the bytes of each partition that the nodes that live hold of a query, as the first one learns it."""
    found: dict[str, dict[int, int]] = {node.name: {} for node in cluster.nodes if node.lives}
    with cluster.nodes[0].client() as client:
        for info in client.holdings(all_nodes=True).nodes:
            if info.node in found:
                _add(found[info.node], info, name)
    return found


def held_by(node: ClusterNode, name: str, from_version: int = 0, *, copies: bool = True) -> dict[int, int]:
    """Return the bytes of each partition that the node holds of a query in this version or a newer one, by itself.

    Without ``copies`` only of those that it has worked with.
    """
    found: dict[int, int] = {}
    with node.client() as client:
        for info in client.holdings().nodes:
            _add(found, info, name, from_version, copies=copies)
    return found


def _add(partitions: dict[int, int], info: HoldingsInfo, name: str, from_version: int = 0, *, copies: bool = True) -> None:
    for store in (store for query in info.queries if query.path.endswith(f"/{name}") for store in query.stores):
        if store.version >= from_version and (copies or not store.copy):
            partitions[store.partition] = partitions.get(store.partition, 0) + store.size_bytes


def fetched(cluster: Cluster) -> dict[str, int]:
    """Return how many bytes the daemon of each node that lives has fetched so far, but for standby copies."""
    return {name: each["bytes_fetched"] - each["standby_bytes_fetched"] for name, each in counters(cluster).items()}


def fetched_by_standbys(cluster: Cluster) -> int:
    """Return how many bytes all nodes that live have fetched for standby copies so far."""
    return sum(each["standby_bytes_fetched"] for each in counters(cluster).values())


def sent(cluster: Cluster) -> int:
    """Return how many bytes all nodes that live have sent to the store so far."""
    return sum(each["bytes_uploaded"] for each in counters(cluster).values())


def counters(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the counters of the daemon of each node that lives, by the node's name."""
    found = {}
    for node in cluster.nodes:
        if node.lives:
            with node.client() as client:
                found[node.name] = client.status().counters
    return found


def are_covered(cluster: Cluster, name: str, partitions: int) -> bool:
    """Say whether each partition of a query has a standby copy, complete and of the newest version that a node holds."""
    newest: dict[int, int] = {}
    complete: dict[int, int] = {}
    for node in cluster.nodes:
        with node.client() as client:
            infos = client.holdings().nodes
        for query in (query for info in infos for query in info.queries if query.path.endswith(f"/{name}")):
            for store in query.stores:
                newest[store.partition] = max(newest.get(store.partition, 0), store.version)
                if store.missing_bytes == 0:
                    complete[store.partition] = max(complete.get(store.partition, 0), store.version)
    return len(newest) == partitions and complete == newest
