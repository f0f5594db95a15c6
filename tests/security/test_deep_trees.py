"""Directories in directories, without an end: what goes through them must need neither stack nor descriptors for each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.control.messages import SweepRequest
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.deep_trees import depth_of, dig
from tests.support.users.privileges import ALICE

_LEVELS = int(os.environ.get("HOLDFAST_TEST_LEVELS", "3000"))
"""More than Python's stack has room for. 100,000 are tried by hand."""


def _dug(home: Path, levels: int = _LEVELS, name: str = "d") -> None:
    def digs() -> None:
        if not home.exists():
            home.mkdir()
        fd = dig(home / "tmp", levels, name)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))

    ALICE.do(digs)


@pytest.mark.promise("deep-trees")
def test_a_deep_tree_is_emptied_when_its_process_starts_again(node: Node) -> None:
    """Gain: the daemon dies of its own stack, for all users of the node, and again at each start."""
    _dug(node.work / "driver_1")
    with node.client() as client:
        client.acquire("driver", "1", os.getpid(), ALICE.uid, ALICE.gid)
    assert os.listdir(node.work / "driver_1/tmp") == []
    wait_until(lambda: os.listdir(node.store / "trash") == [])


@pytest.mark.promise("deep-trees")
def test_a_deep_tree_expires(make_node: NodeFactory) -> None:
    """Gain: the same, by leaving."""
    node = make_node(workdirs__retain_seconds=0).start()
    _dug(node.work / "driver_1")
    wait_until(lambda: not (node.work / "driver_1").exists())
    wait_until(lambda: os.listdir(node.store / "trash") == [])


@pytest.mark.promise("deep-trees")
def test_a_deep_tree_in_the_trash_keeps_no_daemon_from_starting(node: Node) -> None:
    """Gain: no daemon starts on this node any more."""
    node.stop()
    os.close(dig(node.store / "trash", _LEVELS))
    node.start()
    assert os.listdir(node.store / "trash") == []


@pytest.mark.promise("deep-trees")
@pytest.mark.parametrize("name", ["d", "d" * 255])
def test_a_file_that_is_open_deep_in_a_tree_is_taken_over(make_node: NodeFactory, name: str) -> None:
    """Gain: every takeover fails from then on, and everybody's open files are lost with each."""
    node = make_node()
    node.supervised = True
    node.start()
    home = node.work / "driver_1"
    home.mkdir()
    directory = dig(home / "tmp", _LEVELS if name == "d" else 400, name)
    fd = os.open("file", os.O_CREAT | os.O_RDWR, dir_fd=directory)
    with (home / "tmp/other").open("w+b", buffering=0) as other:
        os.write(fd, b"deep")
        other.write(b"shallow")
        node.kill_daemon()
        assert os.pread(fd, 4, 0) == b"deep"
        assert os.pread(other.fileno(), 7, 0) == b"shallow"
        os.write(fd, b"er")
    os.close(fd)
    os.mkdir("after", dir_fd=directory)
    os.close(directory)
    assert depth_of(home / "tmp", name) == (_LEVELS if name == "d" else 400)
    assert node.events("taken-over")[-1]["open_files"] == 2


@pytest.mark.promise("deep-trees")
def test_a_deep_tree_is_swept_without_an_end_of_the_daemon(node: Node) -> None:
    """Gain: the sweep that root has set up ends the daemon."""
    _dug(node.work / "driver_1", 1500, "spark-00000000-0000-4000-8000-000000000000")
    with node.client() as client:
        plan = client.plan_sweep(SweepRequest(str(node.work), grace_seconds=3600))
        assert plan.count == 0
        assert client.status().pid == node.pid


@pytest.mark.promise("deep-trees")
def test_what_can_not_be_deleted_is_set_aside_and_told_of_once(node: Node) -> None:
    """Gain: one entry that the disk does not give up is tried for ever, and at each start."""
    home = node.work / "driver_1"
    home.mkdir()
    (home / "tmp/stubborn").mkdir()
    (home / "tmp/stubborn/file").touch()
    backing = node.store / "tree/work/driver_1/tmp/stubborn"
    subprocess.run(["chattr", "+i", backing], check=True)
    try:
        with node.client() as client:
            client.release("driver", "1")
            client.acquire("driver", "1", os.getpid())
        (aside,) = _waited_for_aside(node)
        assert (aside / "stubborn/file").exists()
        assert aside.name in node.wait_event("not-deleted")["problem"]
        node.stop()
        node.start()
        assert node.events("not-deleted") == []
        assert os.listdir(node.store / "trash") == [aside.name]
    finally:
        for path in [backing, *(node.store / "trash").glob("*/stubborn")]:
            subprocess.run(["chattr", "-i", path], check=False, capture_output=True)


def _waited_for_aside(node: Node) -> list[Path]:
    trash = node.store / "trash"
    wait_until(lambda: any(trash.glob("aside-*")))
    return list(trash.glob("aside-*"))
