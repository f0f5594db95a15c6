"""Three nodes with a worker each: the state is even from the first batch on, and stays where it is when a new driver comes.

What can't run where its state is, because the node is busy or lost, runs elsewhere; only that is fetched.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.placed import Start, connect_server, fetched, held, held_by, run_connected, start, start_java
from tests.cluster.settings import Settings
from tests.support.daemons.node import wait_until
from tests.support.spark import programs as spark_programs

_NODES, _PARTITIONS = 3, 12
_ROWS = ("--rows", "600", "--row-bytes", "10000")
_STATE_BYTES = 600 * 10_000
"""Of each batch, at least."""


@pytest.mark.timeout(900)
def test_the_state_stays_where_it_is_as_far_as_it_can(disk: Path, tmp_path: Path) -> None:
    settings = Settings(nodes=_NODES, partitions=_PARTITIONS, options=(("holdings.interval_seconds", "0.2"),))
    with Cluster.running(disk, settings) as cluster:
        first = start(cluster, "flights", *_ROWS, executors=_NODES)
        assert first.balances() == [[4, 4, 4]]
        wait_until(lambda: sorted(map(len, held(cluster, "flights").values())) == [4, 4, 4])
        before = sum(fetched(cluster).values())
        second = start(cluster, "flights", *_ROWS, executors=_NODES)
        assert second.batch == first.batch + 1
        assert second.hosts == first.hosts
        assert sum(fetched(cluster).values()) - before < 0.02 * _STATE_BYTES
        _a_java_job_does_so_too(cluster, spark_programs.jar_of("Placed", tmp_path))
        spread = _without_the_third(cluster)
        assert spread.balances() == [[6, 6]]
        _with_the_second_busy(cluster, spread)


def _a_java_job_does_so_too(cluster: Cluster, jar: Path) -> None:
    """By the plugin of the properties file, it lies even from its first batch on, and is found by the next driver."""
    shutil.copy(jar, cluster.shared)
    starts = []
    for _ in range(2):
        before = sum(fetched(cluster).values())
        starts.append(start_java(cluster, cluster.shared / jar.name, "java", 600, 10_000, _NODES))
        wait_until(lambda: sorted(map(len, held(cluster, "java").values())) == [4, 4, 4])
    assert starts[0].balances() == [[4, 4, 4]]
    assert starts[1].batch == starts[0].batch + 1
    assert starts[1].hosts == starts[0].hosts
    assert sum(fetched(cluster).values()) - before < 0.02 * _STATE_BYTES


def _without_the_third(cluster: Cluster) -> Start:
    """A start after the third node was lost with its disk: the others fetch its share."""
    lost = cluster.nodes[2]
    share_bytes = sum(held_by(lost, "flights").values())
    lost.kill()
    lost.lose_disk()
    before = sum(fetched(cluster).values())
    spread = start(cluster, "flights", *_ROWS, executors=_NODES - 1)
    assert 0.9 * share_bytes < sum(fetched(cluster).values()) - before < share_bytes + 0.02 * _STATE_BYTES
    return spread


def _with_the_second_busy(cluster: Cluster, before: Start) -> None:
    """A start while the second node does something else for ever: all runs on the first, and ends."""
    busy = start(cluster, "flights", *_ROWS, "--busy", cluster.settings.address(2), executors=_NODES - 1)
    assert busy.batch == before.batch + 1
    assert busy.balances() == [[_PARTITIONS]]


@pytest.mark.timeout(900)
def test_a_server_of_spark_connect_places_state_as_any_driver_does(disk: Path, tmp_path: Path) -> None:
    """By the plugin of the properties file: under another server, each node works with the partitions that it had before."""
    jar = spark_programs.jar_of("Counts", tmp_path)
    settings = Settings(nodes=_NODES, partitions=_PARTITIONS, options=(("holdings.interval_seconds", "0.2"),))
    with Cluster.running(disk, settings) as cluster:
        shutil.copy(jar, cluster.shared)
        by_version = []
        for version in (1, 2):
            with connect_server(cluster, _NODES) as remote:
                run_connected(cluster, remote, cluster.shared / jar.name, "connected")
            wait_until(lambda: sum(map(len, _worked_with(cluster, version))) == _PARTITIONS)  # noqa: B023 called in this turn
            by_version.append(_worked_with(cluster, version))
        assert [len(partitions) for partitions in by_version[0]] == [4, 4, 4]
        assert by_version[1] == by_version[0]


def _worked_with(cluster: Cluster, version: int) -> list[set[int]]:
    """Return the partitions of the query ``connected`` of which each node has this version, or a newer one, of its own."""
    return [set(held_by(node, "connected", version, copies=False)) for node in cluster.nodes]
