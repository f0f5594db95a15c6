"""What a daemon removes by itself while a process is in it, or holds it, never becomes something new, over any takeover."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.crash.test_reused_inodes import kill, make_last, reused
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image

_TRIES = 200
KILLS = {"by one daemon": (False, False), "and made anew by the next": (False, True), "by the next": (True, False)}
"""Whether the daemon is killed before something is removed, and after it."""


@pytest.fixture
def node(make_node: NodeFactory, workspace: Path) -> Iterator[Node]:
    """A supervised node on a disk of one group, which gives the lowest free inode number, with a working directory."""
    with mounted_image("ext4", workspace / "disk", 64 << 20, "-b", "4096") as disk:
        node = make_node(store__directory=disk / "store")
        node.store = disk / "store"
        node.supervised = True
        node.start()
        (node.work / "there").mkdir()
        with node.client() as client:
            client.acquire("worker", "1", os.getpid())
        yield node
        node.stop()


def empty(node: Node, when: str) -> None:
    """Let the daemon empty ``worker_1/tmp``, with kills before or after it."""
    before, after = KILLS[when]
    if before:
        kill(node)
    with node.client() as client:
        client.release("worker", "1")
        client.acquire("worker", "1", os.getpid())
    wait_until(lambda: not os.listdir(node.store / "trash"))
    if after:
        kill(node)


def made_directory(node: Node, inode: int) -> Path:
    return reused(node, inode, Path.mkdir)


def working_directory(node: Node, inode: int) -> Path:
    """Return a directory that the daemon has made in a working directory."""
    for number in range(_TRIES):
        (node.work / f"driver_{number}").mkdir()
        for new in (node.work / f"driver_{number}").iterdir():
            if (node.store / "tree" / new.relative_to(node.mountpoint)).stat().st_ino == inode:
                return new
    raise AssertionError("the disk does not use the inode number again")


@pytest.mark.parametrize(
    ("when", "anew"),
    [
        ("by one daemon", made_directory),
        ("and made anew by the next", made_directory),
        ("by the next", working_directory),
    ],
)
def test_a_new_directory_is_not_taken_for_an_emptied_one_that_a_process_is_in(
    node: Node, when: str, anew: Callable[[Node, int], Path]
) -> None:
    (node.work / "worker_1/tmp/deep").mkdir()
    inode = make_last(node.work / "worker_1/tmp/deep/last", Path.mkdir, Path.rmdir)
    change_mode = "import os; input(); os.chmod('.', 0o700)"
    with subprocess.Popen(
        [sys.executable, "-c", change_mode],
        cwd=node.work / "worker_1/tmp/deep/last",
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        empty(node, when)
        new = anew(node, inode)
        new.chmod(0o755)
        _, problem = process.communicate(b"\n")
    assert b"FileNotFoundError" in problem or b"Stale file handle" in problem
    assert new.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("when", ["and made anew by the next", "by the next"])
def test_a_new_file_is_not_taken_for_an_emptied_one_that_a_process_holds(node: Node, when: str) -> None:
    inode = make_last(node.work / "worker_1/tmp/last", Path.touch, Path.unlink)
    held = os.open(node.work / "worker_1/tmp/last", os.O_PATH)
    try:
        empty(node, when)
        new = reused(node, inode, Path.touch)
        new.chmod(0o644)
        with pytest.raises(OSError) as refused:  # noqa: PT011 the number is the answer
            os.chmod(f"/proc/self/fd/{held}", 0o600)
        assert refused.value.errno in (errno.ENOENT, errno.ESTALE)
        assert new.stat().st_mode & 0o777 == 0o644
    finally:
        os.close(held)


def test_a_new_file_is_not_taken_for_an_evicted_copy_that_a_process_holds(node: Node, remote_files: Path) -> None:
    (remote_files / "object").write_bytes(b"object")
    path = node.checkpoints / "object"
    assert path.read_bytes() == b"object"
    inode = node.backing(path).stat().st_ino
    held = os.open(path, os.O_PATH)
    try:
        kill(node)
        with node.client() as client:
            assert list(client.evict(str(node.checkpoints)))[-1].done == 1
        new = reused(node, inode, Path.touch)
        new.write_bytes(b"new")
        assert Path(f"/proc/self/fd/{held}").read_bytes() == b"object"
        assert (path.read_bytes(), new.read_bytes()) == (b"object", b"new")
    finally:
        os.close(held)


@pytest.mark.parametrize("passthrough", [True, False], ids=["passthrough", "daemon-io"])
def test_what_is_open_in_an_emptied_directory_stays_so_over_takeovers(make_node: NodeFactory, *, passthrough: bool) -> None:
    node = make_node(mount__passthrough=passthrough)
    node.supervised = True
    node.start()
    with node.client() as client:
        client.acquire("worker", "1", os.getpid())
    (node.work / "worker_1/tmp/deep").mkdir()
    (node.work / "new").mkdir()
    paths = [node.work / f"worker_1/tmp/deep/{number}" for number in range(4)]
    for path in paths:
        path.write_bytes(path.name.encode() * 4096)
    os.link(paths[0], node.work / "linked")
    files = [path.open("r+b", buffering=0) for path in paths]
    mapped = mmap.mmap(files[1].fileno(), 4096)
    for when in ("by one daemon", "by the next"):
        empty(node, when)
        for number in range(20):
            (node.work / f"new/{number}").write_bytes(b"new")
        mapped[:4] = b"map!"
        for file, path in zip(files, paths, strict=True):
            assert os.pread(file.fileno(), 10, 100) == path.name.encode() * 10
            os.pwrite(file.fileno(), b"again", 1000)
        kill(node)
        assert [os.pread(file.fileno(), 5, 1000) for file in files] == [b"again"] * 4
        assert [os.fstat(file.fileno()).st_size for file in files] == [4096] * 4
    assert os.pread(files[1].fileno(), 4, 0) == mapped[:4] == b"map!"
    assert {path.read_bytes() for path in (node.work / "new").iterdir()} == {b"new"}
    mapped.close()
    for file in files:
        file.close()
    assert (node.work / "linked").stat().st_nlink == 1
    wait_until(lambda: not os.listdir(node.store / "orphans"))
    node.stop()
