"""A daemon that has taken over gives nothing new the id of what is gone, which the kernel may be about to finish with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_link_counts import assert_linkable, begin, start_holding
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image

_PADDING = 100


@pytest.fixture
def node(make_node: NodeFactory, workspace: Path) -> Iterator[Node]:
    """A supervised node on a disk of one group, which gives the lowest free inode number; with two directories in use."""
    with mounted_image("ext4", workspace / "disk", 64 << 20, "-b", "4096") as disk:
        node = make_node(store__directory=disk / "store")
        node.store = disk / "store"
        start_holding(node)
        yield node
        node.stop()


def make_last(name: Path, make: Callable[[Path], None], remove: Callable[[Path], None]) -> int:
    """Make something; return its inode number, which comes after free ones: so the next daemon's own files take those."""
    padding = [name.with_name(f"padding{number}") for number in range(_PADDING)]
    for path in (*padding, name):
        make(path)
    for path in padding:
        remove(path)
    return name.stat().st_ino


def reused(node: Node, inode: int, make: Callable[[Path], None]) -> Path:
    """Return something new that has the inode number of what is gone."""
    for number in range(2 * _PADDING):
        new = node.work / f"there/new{number}"
        make(new)
        if (node.store / "tree" / new.relative_to(node.mountpoint)).stat().st_ino == inode:
            return new
    raise AssertionError("the disk does not use the inode number again")


def unlink(node: Node) -> None:
    os.unlink(node.work / "here/last")


def rename_over(node: Node) -> None:
    os.rename(node.work / "here/other", node.work / "here/last")


def remove_directory(node: Node) -> None:
    os.rmdir(node.work / "here/last")


def kill(node: Node) -> None:
    node.kill_daemon()
    wait_until(node.answers)


@pytest.mark.parametrize("by_the_next", [False, True])
@pytest.mark.parametrize("removal", [unlink, rename_over])
def test_a_new_file_is_not_taken_for_one_that_was_removed(
    node: Node, removal: Callable[[Node], None], by_the_next: bool
) -> None:
    (node.work / "here/other").touch()
    inode = make_last(node.work / "here/last", Path.touch, Path.unlink)
    if by_the_next:
        kill(node)
    thread = begin(node, removal, "here/last")
    if not by_the_next:
        kill(node)
    new = reused(node, inode, Path.touch)
    (node.directory / "held").unlink()
    thread.join()
    assert_linkable(new)


@pytest.mark.parametrize("removed_by_the_next", [False, True])
def test_a_new_directory_is_not_taken_for_the_removed_one_that_a_process_is_in(
    node: Node, removed_by_the_next: bool
) -> None:
    """More names are removed than the session notes."""
    inode = make_last(node.work / "here/last", Path.mkdir, Path.rmdir)
    change_mode = "import os; input(); os.chmod('.', 0o700)"
    with subprocess.Popen(
        [sys.executable, "-c", change_mode], cwd=node.work / "here/last", stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if removed_by_the_next:
            kill(node)
        (node.work / "here/last").rmdir()
        for _ in range(600):
            (node.work / "here/other").touch()
            (node.work / "here/other").unlink()
        kill(node)
        new = reused(node, inode, Path.mkdir)
        new.chmod(0o755)
        _, problem = process.communicate(b"\n")
    assert b"FileNotFoundError" in problem or b"Stale file handle" in problem
    assert new.stat().st_mode & 0o777 == 0o755


def test_a_new_directory_is_not_taken_for_one_that_was_removed(node: Node) -> None:
    inode = make_last(node.work / "here/last", Path.mkdir, Path.rmdir)
    thread = begin(node, remove_directory, "here/last")
    kill(node)
    new = reused(node, inode, Path.mkdir)
    (node.directory / "held").unlink()
    thread.join()
    assert os.listdir(new) == []
