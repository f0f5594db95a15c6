"""The kernel counts links too, and refuses link(2) with ENOENT at 0: whatever it is told when, it must not get there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.faults.switches import HELD
from tests.support.daemons.node import Node, wait_until
from tests.support.kernel.needs import needs_takeover


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    """A supervised node with a file of two names, ``here/going`` and ``there/staying``, that the kernel does not know."""
    node = make_node()
    node.outlives_daemon = False
    start_holding(node)
    (node.work / "here/going").write_bytes(b"bytes")
    os.link(node.work / "here/going", node.work / "there/staying")
    (node.work / "here/other").write_bytes(b"other")
    node.stop()
    return node.start()


def start_holding(node: Node) -> None:
    """Start a node, supervised, whose daemon answers removals late, with the directories ``here`` and ``there``."""
    node.supervised = True
    node.faults = ["late_answers"]
    node.environment = {HELD: str(node.directory / "held")}
    node.start()
    for name in ("here", "there"):
        (node.work / name).mkdir()


def unlink(node: Node) -> None:
    os.unlink(node.work / "here/going")


def rename_over(node: Node) -> None:
    os.rename(node.work / "here/other", node.work / "here/going")


def look_up(name: Path) -> None:
    assert name.stat().st_nlink == 1


def list_with_attributes(name: Path) -> None:
    with os.scandir(name.parent) as entries:
        assert [entry.stat().st_nlink for entry in entries] == [1]


def begin(node: Node, removal: Callable[[Node], None], name: str = "here/going") -> threading.Thread:
    """Begin to remove a name; return when it is gone and the answer is not given."""
    going = node.store / "tree/work" / name
    inode = going.stat().st_ino
    (node.directory / "held").touch()
    thread = threading.Thread(target=removal, args=(node,))
    thread.start()
    wait_until(lambda: inode_of(going) != inode)
    return thread


def inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def assert_linkable(name: Path) -> None:
    os.link(name, name.with_name("linked"))
    assert name.stat().st_nlink == 2


@pytest.mark.promise("local-links")
@pytest.mark.parametrize("look", [look_up, list_with_attributes])
@pytest.mark.parametrize("removal", [unlink, rename_over])
def test_a_file_that_is_found_while_it_loses_a_name_can_be_linked(
    node: Node, removal: Callable[[Node], None], look: Callable[[Path], None]
) -> None:
    thread = begin(node, removal)
    look(node.work / "there/staying")
    (node.directory / "held").unlink()
    thread.join()
    assert_linkable(node.work / "there/staying")


def test_a_known_file_that_is_looked_at_while_it_loses_a_name_can_be_linked(node: Node) -> None:
    staying = node.work / "there/staying"
    assert (node.work / "here/going").samefile(staying)
    os.link(staying, node.work / "there/first")
    os.unlink(node.work / "there/first")  # so that the kernel asks for the attributes again
    thread = begin(node, unlink)
    with staying.open("rb") as file:
        assert os.fstat(file.fileno()).st_nlink == 1
    (node.directory / "held").unlink()
    thread.join()
    assert_linkable(staying)


@needs_takeover
@pytest.mark.promise("local-links")
@pytest.mark.parametrize("look", [look_up, list_with_attributes])
@pytest.mark.parametrize("removal", [unlink, rename_over])
def test_a_file_whose_name_an_earlier_daemon_has_removed_can_be_linked(
    node: Node, removal: Callable[[Node], None], look: Callable[[Path], None]
) -> None:
    thread = begin(node, removal)
    node.kill_daemon()
    wait_until(node.answers)
    look(node.work / "there/staying")
    (node.directory / "held").unlink()
    thread.join()
    assert_linkable(node.work / "there/staying")
    assert len(node.events("taken-over")) == 1
