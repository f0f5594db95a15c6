"""Servers that stand still while a daemon uses them: what is written waits for them, and the daemon can end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.processes.stopping import standing_still
from tests.support.stores.contract_servers import StoreServer
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import Versitygw
from tests.support.stores.two_nodes import node_at, place_at
from tests.unit.remote.test_remote_contract import content, opened

pytestmark = pytest.mark.timeout(600)  # with the start of a server


@pytest.fixture(params=["azurite", "gs-fake", "hdfs", "s3-ceph", "s3-versitygw", "sshd"])
def place(request: pytest.FixtureRequest) -> StoreServer | Hdfs | Versitygw:
    return place_at(request, request.param)


def started(make_node: NodeFactory, place: StoreServer | Hdfs | Versitygw, deadline_seconds: float) -> Node:
    """Return a started node at ``place``, with an object."""
    settings = {"remote__request_timeout_seconds": 2, "remote__retry_deadline_seconds": deadline_seconds}
    node = node_at(make_node, place, **settings).start()
    (node.checkpoints / "job").mkdir()
    (node.checkpoints / "job/before").write_bytes(b"before")
    return node


def test_what_is_written_while_a_server_stands_still_is_there_when_it_goes_on(
    make_node: NodeFactory, place: StoreServer | Hdfs | Versitygw
) -> None:
    node = started(make_node, place, 600)
    with ThreadPoolExecutor(1) as pool:
        with standing_still(place.pid):
            writing = pool.submit((node.checkpoints / "job/during").write_bytes, b"during")
            node.wait_event("remote-down", store="checkpoints")
            assert (node.checkpoints / "job/before").read_bytes() == b"before"
            assert not writing.done()
        writing.result()
    node.wait_event("remote-up", store="checkpoints")
    store = opened(place.url, dict(place.options))
    assert [content(store, f"job/{name}") for name in ("before", "during")] == [b"before", b"during"]


def test_a_server_that_stands_still_does_not_keep_the_daemon_from_ending(
    make_node: NodeFactory, place: StoreServer | Hdfs | Versitygw
) -> None:
    """Requests under way have their time: here it is short, and what has not come back from a library does not add to it."""
    node = started(make_node, place, 5)
    with ThreadPoolExecutor(1) as pool, standing_still(place.pid):
        writing = pool.submit((node.checkpoints / "job/during").write_bytes, b"during")
        node.wait_event("remote-down", store="checkpoints")
        node.terminate()
        with pytest.raises(OSError, match="Input/output"):
            writing.result()
    assert (node.start().checkpoints / "job/before").read_bytes() == b"before"
