"""Handles that a dead daemon counted and the kernel does not have: the next daemon does not keep them for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.kernel import Machine
from holdfast.kernel.probe import can_prune
from holdfast.session import OpenTable
from tests.conftest import NodeFactory
from tests.crash.test_takeover import no_daemon, supervised
from tests.support.daemons.faults.crash_points import POINT
from tests.support.daemons.faults.switches import ARMED, HELD
from tests.support.daemons.node import Node, wait_until

OPENERS = 20


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    """A supervised node whose daemon dies once after it has counted an open, when armed."""
    node = make_node()
    node.supervised = True
    node.faults = ["crash_at_point", "late_takeover"]
    node.environment = {
        POINT: "reply: open",
        ARMED: str(node.directory / "armed"),
        HELD: str(node.directory / "held"),
    }
    return node.start()


def counted(node: Node) -> int:
    """Return how many handles of the kernel are counted for the next daemon."""
    table = OpenTable(node.session / "opens")
    try:
        return sum(record.handles for record in table.records())
    finally:
        table.close()


def kill_openers(node: Node, path: Path) -> None:
    """Let the daemon die at the first of many opens of a file, and the openers before the next daemon answers."""
    before = counted(node)
    (node.directory / "held").touch()
    (node.directory / "armed").touch()
    command = [sys.executable, "-I", "-S", "-c", f"open({os.fspath(path)!r}).read()"]
    openers = [subprocess.Popen(command) for _ in range(OPENERS)]
    wait_until((node.directory / "held.waits").exists)
    for opener in openers:
        opener.kill()
    for opener in openers:
        opener.wait(60)  # the kernel takes back what no daemon has read
    assert counted(node) == before + 1
    (node.directory / "held").unlink()
    wait_until(node.answers)


@pytest.mark.skipif(not can_prune(Machine.this()), reason="the kernel can't be asked to forget a file")
def test_openers_that_are_killed_while_they_wait_for_a_daemon_leave_nothing_open(node: Node) -> None:
    path = node.work / "file"
    path.write_bytes(b"kept")
    node.backing(path)
    with (node.work / "other").open("w+b", buffering=0) as other:
        kill_openers(node, path)
        wait_until(lambda: counted(node) == 1)
        other.write(b"in use")
        assert os.pread(other.fileno(), 6, 0) == b"in use"
    node.backing(path)
    assert path.read_bytes() == b"kept"
    node.stop()


def test_a_file_that_killed_openers_have_left_counted_is_gone_when_it_is_removed(node: Node) -> None:
    path = node.work / "file"
    path.write_bytes(b"removed")
    node.backing(path)
    kill_openers(node, path)
    path.unlink()
    wait_until(lambda: counted(node) == 0 and not os.listdir(node.store / "orphans"))
    node.stop()


def test_a_file_that_the_kernel_has_forgotten_is_not_open_unless_it_was_just_being_created(make_node: NodeFactory) -> None:
    node = supervised(make_node)
    paths = [node.work / "forgotten", node.work / "created"]
    for path in paths:
        path.write_bytes(b"kept")
    inodes = [node.backing(path).stat().st_ino for path in paths]
    node.stop()
    node.start()  # a new mount, which has not heard of the files
    with no_daemon(node):
        table = OpenTable(node.session / "opens")
        for number, inode in enumerate(inodes, 1):
            table.count(table.add(inode, 0, writes=True, exclusive=False, uid=0), 3, number)
        table.close()
    wait_until(lambda: node.answers() and counted(node) == 3)
    (node.work / "other").touch()
    node.kill_daemon()
    wait_until(lambda: node.answers() and counted(node) == 0)
    assert [path.read_bytes() for path in paths] == [b"kept"] * 2
