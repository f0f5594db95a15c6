"""SIGKILL while a working directory on another disk is removed: it is there as before, or it is gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.crash.test_named_points import crash
from tests.support.daemons.node import Node
from tests.support.disks.two_disks import on_two_disks

MIB = 1 << 20


@pytest.fixture
def node(make_node: NodeFactory, workspace: Path) -> Iterator[Node]:
    """A node whose working directories are all on another disk, with one that has a file."""
    with on_two_disks(make_node, workspace, 32 * MIB, 256 * MIB) as node:
        node.start()
        (node.work / "worker_1").mkdir()
        (node.work / "worker_1/rocksdb/file").write_bytes(b"kept")
        node.stop()
        yield node


def empty(node: Node) -> None:
    """Remove all that is in the working directory."""
    node.start()
    for path in (node.work / "worker_1").iterdir():
        subprocess.run(["rm", "-r", str(path)], check=True)
    node.stop()


def remove(node: Node) -> None:
    (node.work / "worker_1").rmdir()


@pytest.mark.parametrize(
    ("point", "is_there"),
    [("other disk: placeholder marked", True), ("other disk: directory gone, placeholder there", False)],
)
def test_an_empty_directory_that_is_removed_does_not_come_back(
    node: Node, workspace: Path, point: str, is_there: bool
) -> None:
    empty(node)
    crash(node, point, remove)
    assert os.listdir(node.work) == ["worker_1"] * is_there
    assert len(os.listdir(workspace / "other/holdfast/workdirs")) == is_there
    node.stop()
    node.start()
    assert os.listdir(node.work) == ["worker_1"] * is_there
    (node.work / "worker_1").mkdir(exist_ok=True)
    (node.work / "worker_1/tmp").mkdir(exist_ok=True)
    (node.work / "worker_1/tmp/file").write_bytes(b"it goes on")
