"""Level ``async``: whatever happens to names while a file waits to be sent, the store has it in the end under each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    return make_node(checkpoints__durability="async").start()


def wait_sent(node: Node) -> None:
    wait_until(lambda: node.status().unsent == [])


def test_files_that_are_renamed_while_they_are_sent_are_sent_under_their_new_names(node: Node, remote_files: Path) -> None:
    wanted = {}
    for number in range(300):
        path = node.checkpoints / f"old-{number}"
        path.write_bytes(b"%d" % number)
        for _ in range(number % 4):
            path.stat()  # a rename comes before, while and after it is sent
        path.rename(node.checkpoints / f"new-{number}")
        wanted[f"new-{number}"] = b"%d" % number
    wait_sent(node)
    wait_until(lambda: objects(remote_files) == wanted)


def test_a_file_with_two_names_is_sent_under_both(node: Node, remote_files: Path) -> None:
    first, second = node.checkpoints / "first", node.checkpoints / "second"
    first.write_bytes(b"old")
    os.link(first, second)
    wait_sent(node)
    first.write_bytes(b"new bytes")
    wait_sent(node)
    assert objects(remote_files) == {"first": b"new bytes", "second": b"new bytes"}
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))
    assert first.read_bytes() == second.read_bytes() == b"new bytes"


def test_a_file_with_two_names_is_sent_under_both_after_a_crash(
    make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy
) -> None:
    node = make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async").start()
    first, second = node.checkpoints / "first", node.checkpoints / "second"
    first.write_bytes(b"old")
    os.link(first, second)
    wait_until(lambda: keys(place) == {"checkpoints/first", "checkpoints/second"})
    wait_sent(node)
    proxy.down()
    second.write_bytes(b"new bytes")
    node.kill()
    node.start()
    proxy.up()
    wait_sent(node)
    for name in ("first", "second"):
        found = place.client().get_object(Bucket=place.bucket, Key=place.key(f"checkpoints/{name}"))
        assert found["Body"].read() == b"new bytes"
