"""On XFS reads take the lock of the inode: a user who holds that of a file, by a write, holds up nobody else."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.fs.inodes.hot_files import PATIENCE_SECONDS
from tests.conftest import NodeFactory
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image
from tests.support.users.held_locks import held_up, write
from tests.support.users.privileges import MALLORY
from tests.support.users.stalls import bystander

MIB = 2**20
_SIZES = {"small": 5000, "large": 3 * MIB}
"""Bytes: of a file that is sent in one request, and of one that is read twice."""


@pytest.fixture
def own(workspace: Path) -> Path:
    """A directory for Mallory's file system."""
    path = workspace / "own"
    path.mkdir()
    return path


@pytest.fixture
def xfs(workspace: Path) -> Iterator[Path]:
    with mounted_image("xfs", workspace / "disk", 320 * MIB) as disk:
        yield disk


@pytest.fixture
def node(make_node: NodeFactory, xfs: Path) -> Node:
    node = make_node(store__directory=xfs / "store", remote__single_put_limit_bytes=MIB)
    node.store = xfs / "store"
    node.supervised = True
    return node.start()


def _made(node: Node, size: str) -> Path:
    """An object in a store's directory, both Mallory's."""
    directory = node.checkpoints / size
    directory.mkdir()
    os.chown(directory, MALLORY.uid, MALLORY.gid)
    MALLORY.do(lambda: (directory / "file").write_bytes(b"x" * _SIZES[size]))
    return directory / "file"


def _close(file: Path) -> None:
    """Open a file for writing and close it: what was written to it is sent, or that is tried."""
    os.close(os.open(file, os.O_RDWR))


def _is_busy(file: Path) -> None:
    began = time.monotonic()
    with pytest.raises(OSError, match="busy") as problem:
        _close(file)
    assert problem.value.errno == errno.EBUSY
    assert time.monotonic() - began < 3 * PATIENCE_SECONDS


@pytest.mark.promise("local-busy")
@pytest.mark.parametrize("size", _SIZES)
def test_a_file_that_is_written_with_memory_that_does_not_come_is_busy_and_sent_later(
    node: Node, own: Path, remote_files: Path, size: str
) -> None:
    """Gain: a thread of the daemon waits for as long as Mallory likes, and whoever looks at the file with it."""
    file = _made(node, size)
    with bystander(node) as waits, held_up(MALLORY, [partial(write, file)], own):
        MALLORY.do(partial(_is_busy, file))
        assert file.stat().st_size == _SIZES[size]
        (file.parent / "other").write_bytes(b"sent")
    waits.check()
    expected = b"written" + b"x" * (_SIZES[size] - 7)
    wait_until(lambda: (remote_files / size / "file").read_bytes() == expected)
    assert file.read_bytes() == expected
    assert_in_order(node)


def test_a_daemon_that_reads_a_file_whose_lock_is_held_can_be_killed(node: Node, own: Path, remote_files: Path) -> None:
    """Gain: no other daemon can start."""
    file = _made(node, "small")
    with bystander(node), held_up(MALLORY, [partial(write, file)], own):
        for _ in range(2):
            MALLORY.do(partial(_is_busy, file))
            node.kill_daemon()
            wait_until(node.answers)
    expected = b"written" + b"x" * (_SIZES["small"] - 7)
    wait_until(lambda: (remote_files / "small/file").read_bytes() == expected)
    assert_in_order(node)


def test_a_file_that_is_held_for_a_moment_is_sent_by_its_close(node: Node, own: Path, remote_files: Path) -> None:
    file = _made(node, "small")
    pid = 0
    with held_up(MALLORY, [partial(write, file)], own):
        pid = os.fork()
        if pid == 0:
            try:
                MALLORY.become()
                _close(file)
            finally:
                os._exit(0)
    os.waitpid(pid, 0)
    assert (remote_files / "small/file").read_bytes() == b"written" + b"x" * (_SIZES["small"] - 7)
