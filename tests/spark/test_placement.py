"""Three nodes with a worker each: the state stays where it is when a new driver comes, and is even from the first batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.placed import fetched, held, start
from tests.cluster.settings import Settings
from tests.support.node import wait_until

_NODES, _PARTITIONS = 3, 12
_ROWS = ("--rows", "600", "--row-bytes", "10000")


@pytest.mark.timeout(600)
def test_a_new_driver_finds_the_state_where_it_was(disk: Path) -> None:
    settings = Settings(nodes=_NODES, partitions=_PARTITIONS, options=(("holdings.interval_seconds", "0.2"),))
    with Cluster.running(disk, settings) as cluster:
        first = start(cluster, "flights", *_ROWS, executors=_NODES)
        assert first.balances() == [[4, 4, 4]]
        wait_until(lambda: sorted(map(len, held(cluster, "flights").values())) == [4, 4, 4])
        before = sum(fetched(cluster).values())
        second = start(cluster, "flights", *_ROWS, executors=_NODES)
        assert second.batch == first.batch + 1
        assert second.hosts == first.hosts
        assert sum(fetched(cluster).values()) - before < 0.02 * 600 * 10_000
