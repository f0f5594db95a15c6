"""Two nodes over one HDFS: what it is asked to promise, seen by users of the mounts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, settle, wait_until
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.two_nodes import create_once, two_nodes, winner

CONTENT = b"0123456789" * 30_000


def error_of(action: Callable[[], object]) -> int | None:
    """Return the error of an action; None if it succeeds."""
    try:
        action()
    except OSError as problem:
        return problem.errno
    return None


@pytest.fixture
def place(hdfs: Hdfs, request: pytest.FixtureRequest) -> Hdfs:
    """A directory of the test's own."""
    return hdfs.below(request.node.name)


@pytest.fixture
def nodes(make_node: NodeFactory, place: Hdfs) -> list[Node]:
    return two_nodes(make_node, place)


def test_two_nodes_over_hdfs(nodes: list[Node], place: Hdfs) -> None:
    one, other = (node.checkpoints / "job" for node in nodes)
    one.mkdir()
    name = "gru\u0308n"  # which Hadoop garbles on the way to a datanode
    (one / name).write_bytes(CONTENT)
    assert (other / name).read_bytes() == CONTENT

    for node in (one, other):
        (node / "offsets").mkdir()
    for number in range(5):
        _race([one / "offsets" / f"{number}", other / "offsets" / f"{number}"])

    for refused, reason in (("a:b", errno.EINVAL), ("x" * 256, errno.ENAMETOOLONG), (".snapshot", errno.EINVAL)):
        assert error_of(partial((one / refused).write_bytes, b"1")) == reason
    place.make_directory("755", "job/ours")
    assert error_of(partial((other / "ours/new").write_bytes, b"1")) == errno.EIO
    assert [node.status().remotes["checkpoints"].up for node in nodes] == [True, True], "none of this is an outage"

    (one / "chk-1").mkdir()
    (one / "chk-1/_metadata").write_bytes(b"1")
    (one / "chk-1/_metadata").unlink()
    (one / "chk-1").rmdir()
    settle(one)
    wait_until(lambda: "chk-1" not in place.names("job"))


def _race(paths: list[Path]) -> None:
    """Create one write-once name on both nodes: one is told EEXIST, and both read the other's bytes."""
    with ThreadPoolExecutor(2) as threads:
        winner(paths, list(threads.map(create_once, paths)))


def test_what_was_changed_in_hdfs_is_not_read(nodes: list[Node], place: Hdfs) -> None:
    """The digest is kept with the object, so another node notices that bytes of the same number are others."""
    one, other = (node.checkpoints / "job" for node in nodes)
    one.mkdir()
    (one / "state").write_bytes(CONTENT)
    place.exchange_bytes("job/state", CONTENT[::-1])
    nodes[1].expected_faults.append("digest")
    assert error_of((other / "state").read_bytes) == errno.EIO
