"""The kernel's cache of names is bounded: what is forgotten is found again, and what is in use is not disturbed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until

_MOST = 50
_FILES = 400


@pytest.fixture(params=["prune", "old kernel"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    node = make_node(limits__cached_names=_MOST)
    if request.param == "old kernel":
        node.faults = ["no_prune"]
    elif tuple(map(int, os.uname().release.split(".")[:2])) < (6, 18):
        pytest.skip("this kernel can't be asked to forget what nobody uses")
    return node.start()


@pytest.fixture
def files(node: Node) -> Path:
    directory = node.work / "spark_1" / "files"
    directory.mkdir(parents=True)
    for number in range(_FILES):
        (directory / f"{number}").write_text(f"{number}")
    return directory


def known(node: Node) -> int:
    """Return how many files and directories the kernel has from this daemon."""
    return node.status().known_nodes


def used(files: Path) -> Callable[[], bool]:
    """Return a look at all files, which says whether each has its bytes."""
    return lambda: all((files / f"{number}").read_text() == f"{number}" for number in range(_FILES))


def test_what_nobody_uses_is_forgotten(node: Node, files: Path) -> None:
    wait_until(lambda: known(node) <= _MOST)
    inodes = {entry.name: entry.inode() for entry in os.scandir(files)}
    assert used(files)()
    assert {name: os.stat(files / name).st_ino for name in inodes} == inodes
    wait_until(lambda: known(node) <= _MOST)


def test_what_is_in_use_is_not_disturbed(node: Node, files: Path) -> None:
    with (files / "0").open("r+") as file:
        directory = os.open(files, os.O_PATH)
        try:
            wait_until(lambda: known(node) <= _MOST)
            assert os.readlink(f"/proc/self/fd/{file.fileno()}") == str(files / "0")
            assert os.readlink(f"/proc/self/fd/{directory}") == str(files)
            file.write("new")
            file.flush()
            os.stat("1", dir_fd=directory)
        finally:
            os.close(directory)
    assert (files / "0").read_text() == "new"


def test_objects_that_are_only_in_the_store_are_found_again(node: Node, remote_files: Path) -> None:
    (remote_files / "job").mkdir(parents=True)
    for number in range(_FILES):
        (remote_files / "job" / f"{number}").write_text(f"{number}")
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(node.checkpoints / "job")}
    assert len(sizes) == _FILES
    wait_until(lambda: known(node) <= _MOST)
    assert used(node.checkpoints / "job")()
    wait_until(lambda: known(node) <= _MOST)
    assert used(node.checkpoints / "job")()
