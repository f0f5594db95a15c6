"""Three nodes with a worker each: the state is even from the first batch on, and stays where it is when a new driver comes.

What can't run where its state is, because the node is busy or lost, runs elsewhere; only that is fetched.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.placed import Start, fetched, held, held_by, start
from tests.cluster.settings import Settings
from tests.support.node import wait_until

_NODES, _PARTITIONS = 3, 12
_ROWS = ("--rows", "600", "--row-bytes", "10000")
_STATE_BYTES = 600 * 10_000
"""Of each batch, at least."""


@pytest.mark.timeout(600)
def test_the_state_stays_where_it_is_as_far_as_it_can(disk: Path) -> None:
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
        spread = _without_the_third(cluster)
        assert spread.balances() == [[6, 6]]
        _with_the_second_busy(cluster, spread)


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
