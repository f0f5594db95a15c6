"""``holdfast checkpoint clone`` by members of the control group, for whom the daemon copies with rights of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.control.client import RefusedError
from holdfast.control.messages import CloneRequest
from tests.mount.test_verify import QUERY, lay
from tests.support.daemons.node import Node
from tests.support.users.privileges import ALICE, MALLORY, User

SAMPLE = "spark-rocksdb-1-changelog"


@pytest.fixture
def query(node: Node) -> Path:
    """A query that everybody may read; the control socket is Mallory's group's, and there is a directory of Mallory's."""
    lay(node, SAMPLE, QUERY)
    os.chown(node.socket, 0, MALLORY.gid)
    give(node.checkpoints / "mallory", MALLORY)
    give(node.checkpoints / "alice", ALICE)
    with node.client():
        pass  # what the client imports late is closed to others
    return node.checkpoints / QUERY


def give(path: Path, user: User) -> None:
    path.mkdir()
    os.chown(path, user.uid, user.gid)


def clone(node: Node, source: Path, target: Path) -> None:
    with node.client() as client:
        list(client.clone(CloneRequest(path=str(source), to=str(target))))


def refused(node: Node, source: Path, target: Path) -> None:
    """Let Mallory try to clone ``source``, and be told that this may not be."""

    def tries() -> None:
        with pytest.raises(RefusedError, match="may not"):
            clone(node, source, target)

    MALLORY.do(tries)


def test_a_member_of_the_group_copies_nothing_that_it_may_not_read(node: Node, query: Path) -> None:
    """Gain: the bytes of any checkpoint, in a copy in a place that Mallory can read."""
    target = node.checkpoints / "mallory/copy"
    for closed, mode in (
        (query, 0o700),
        (query / "state/0", 0o750),
        (query / "commits", 0o711),
        (query / "metadata", 0o600),
    ):
        before = closed.stat().st_mode
        closed.chmod(mode)
        refused(node, query, target)
        closed.chmod(before)
    assert not target.exists()
    MALLORY.do(lambda: clone(node, query, target))
    assert (target / "metadata").exists()


def test_a_member_of_the_group_puts_no_copy_in_a_place_of_others(node: Node, query: Path, remote_files: Path) -> None:
    """Gain: a query of somebody else goes on from what Mallory wants."""
    for target in ("alice/copy", "copy", "new/copy"):
        refused(node, query, node.checkpoints / target)
    assert not [path for path in remote_files.rglob("metadata") if path.parent.name == "copy"]


def test_of_what_only_the_store_has_the_modes_of_the_store_count(node: Node, query: Path) -> None:
    """Gain: as above, from a query that this node knows nothing of."""
    node.stop()
    node.lose_disk()
    node.start(checkpoints__file_mode="0600")
    os.chown(node.socket, 0, MALLORY.gid)
    give(node.checkpoints / "mallory", MALLORY)
    refused(node, query, node.checkpoints / "mallory/copy")
