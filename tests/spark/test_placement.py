"""Three nodes with a worker each: the state stays where it is when a new driver comes, and is even from the first batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.settings import TOOLS, Settings
from tests.support.node import wait_until

_JOB = str(TOOLS / "checkout/tests/cluster/placed_job.py")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # halves what short jobs take
_NODES, _PARTITIONS = 3, 12


def run(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """Run the job with a new driver on the first node; return what it says."""
    confs = {
        "spark.holdfast.executors": str(_NODES),
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
    }
    settings = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
    said = cluster.nodes[0].run("python", _JOB, *arguments, *settings)
    result: dict[str, Any] = json.loads(said.splitlines()[-1])
    return result


def held(cluster: Cluster, name: str) -> dict[str, set[int]]:
    """Return the partitions that each node holds of a query, as a node learns it."""
    with cluster.nodes[1].client() as client:
        found = client.holdings(all_nodes=True).nodes
    return {
        node.node: {store.partition for query in node.queries for store in query.stores if query.path.endswith(f"/{name}")}
        for node in found
        if node.zone == "checkpoints"
    }


def fetched(cluster: Cluster) -> int:
    total = 0
    for node in cluster.nodes:
        with node.client() as client:
            total += client.status().counters["bytes_fetched"]
    return total


@pytest.mark.timeout(600)
def test_a_new_driver_finds_the_state_where_it_was(disk: Path) -> None:
    settings = Settings(nodes=_NODES, partitions=_PARTITIONS, options=(("holdings.interval_seconds", "0.2"),))
    with Cluster.running(disk, settings) as cluster:
        first = run(cluster, "flights", "--rows", "600", "--row-bytes", "10000")
        assert [sorted(Counter(hosts.values()).values()) for hosts in first["hosts"]] == [[4, 4, 4]]
        wait_until(lambda: sorted(map(len, held(cluster, "flights").values())) == [4, 4, 4])
        before = fetched(cluster)
        second = run(cluster, "flights", "--rows", "600", "--row-bytes", "10000")
        assert second["batch"] == first["batch"] + 1
        assert second["hosts"] == first["hosts"]
        assert fetched(cluster) - before < 0.02 * 600 * 10_000
