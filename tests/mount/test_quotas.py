"""``roles.NAME.max_bytes``: a working directory that takes more of the disk than it may takes nothing new."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path

import pytest

from holdfast.control.messages import WorkdirInfo
from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.programs import holdfast

LIMIT_BYTES = 4 << 20
MUCH = b"x" * (6 << 20)


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    return make_node(roles__worker__max_bytes=LIMIT_BYTES).start()


@pytest.fixture
def worker(node: Node) -> Path:
    (node.work / "worker_1").mkdir()
    return node.work / "worker_1"


def info(node: Node, path: Path) -> WorkdirInfo:
    with node.client() as client:
        return next(each for each in client.workdirs() if each.path == str(path))


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as problem:
        return problem.errno == errno.EDQUOT
    return False


def fill(node: Node, worker: Path) -> None:
    """Take more room than the working directory may, in one request, and wait until the daemon has noticed."""
    with (worker / "much").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, len(MUCH))
    node.wait_event("quota-reached", path="work/worker_1")


KEEP_SIZE, PUNCH_HOLE = 1, 3
"""Modes of fallocate(2): FALLOC_FL_KEEP_SIZE, and FALLOC_FL_PUNCH_HOLE with it."""


def fallocate(fd: int, mode: int, size_bytes: int) -> None:
    """fallocate(2) at the beginning of a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(fd, mode, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0, os.strerror(ctypes.get_errno())


def exchange(one: Path, other: Path) -> None:
    rename_with_flags(-100, bytes(one), -100, bytes(other), RENAME_EXCHANGE)


def wait_below(node: Node) -> None:
    node.wait_event("quota-below-again", path="work/worker_1")


@pytest.mark.promise("quota")
def test_who_is_above_the_limit_takes_nothing_new_until_it_is_below_again(node: Node, worker: Path) -> None:
    (worker / "small").write_bytes(b"small")
    (node.work / "driver_1").mkdir()
    (node.work / "driver_1/elsewhere").write_bytes(b"bytes")
    fill(node, worker)
    assert refused(lambda: (worker / "new").touch())
    assert refused(lambda: (worker / "new").mkdir())
    assert refused(lambda: (worker / "new").symlink_to("small"))
    assert refused(lambda: os.link(worker / "small", worker / "new"))
    assert refused(lambda: (worker / "small").open("ab"))
    assert refused(lambda: (worker / "localState/new").touch())
    assert refused(lambda: (worker / "blobStorage/new").touch())
    assert refused(lambda: os.setxattr(worker / "small", "user.x", b"x" * 2000))
    assert refused(lambda: (node.work / "driver_1/elsewhere").rename(worker / "new"))
    assert (worker / "small").read_bytes() == b"small"
    large = node.work / "driver_1/elsewhere"
    assert refused(lambda: exchange(large, worker / "small"))
    assert refused(lambda: exchange(worker / "small", large))
    assert refused(lambda: os.setxattr(worker, "user.x", b"x" * 2000))
    assert refused(lambda: os.setxattr(worker / "tmp", "user.x", b"x" * 2000))
    (worker / "small").rename(worker / "moved")
    (worker / "moved").chmod(0o600)
    (worker / "moved").unlink()
    worker.chmod(0o700)
    (node.work / "driver_1/much").write_bytes(MUCH)
    (node.checkpoints / "much").write_bytes(MUCH)
    os.truncate(worker / "much", 1000)
    wait_below(node)
    (worker / "new").write_bytes(b"new")


@contextmanager
def above_the_limit(node: Node, worker: Path) -> Iterator[FileIO]:
    """Write more to a file than the working directory may take; it stays open in this context.

    A daemon that serves the data may notice in the middle and refuse the rest.
    """
    with (worker / "open").open("wb", buffering=0) as file:
        assert LIMIT_BYTES <= file.write(MUCH) <= len(MUCH)
        node.wait_event("quota-reached", path="work/worker_1")
        yield file


@pytest.mark.promise("quota-measured")
def test_what_is_written_through_an_open_file_is_seen_too(node: Node, worker: Path) -> None:
    with above_the_limit(node, worker) as file:
        file.truncate(0)
        wait_below(node)


@pytest.mark.promise("quota-measured")
def test_a_write_that_goes_through_the_daemon_is_refused(make_node: NodeFactory) -> None:
    node = make_node(roles__worker__max_bytes=LIMIT_BYTES, mount__passthrough=False).start()
    worker = node.work / "worker_1"
    worker.mkdir()
    with above_the_limit(node, worker) as file:
        assert refused(lambda: file.write(b"more"))
        assert refused(lambda: os.posix_fallocate(file.fileno(), 0, 100 << 20))
        file.truncate(0)
        wait_below(node)
        file.write(b"more")


@pytest.mark.promise("quota")
@pytest.mark.parametrize("passthrough", [True, False])
def test_a_hole_can_be_punched_above_the_limit(make_node: NodeFactory, passthrough: bool) -> None:
    node = make_node(roles__worker__max_bytes=LIMIT_BYTES, mount__passthrough=passthrough).start()
    worker = node.work / "worker_1"
    worker.mkdir()
    with above_the_limit(node, worker) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        assert refused(lambda: os.posix_fallocate(file.fileno(), size_bytes, 1 << 20))
        fallocate(file.fileno(), PUNCH_HOLE, size_bytes)
        wait_below(node)
        assert (worker / "open").stat().st_size == size_bytes


@pytest.mark.promise("quota-counted")
def test_what_takes_no_room_does_not_count(node: Node, worker: Path, remote_files: Path) -> None:
    (node.checkpoints / "object").write_bytes(MUCH)
    assert objects(remote_files) == {"object": MUCH}
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))
    assert (worker / "localState/object").read_bytes() == MUCH
    with (worker / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (worker / "one").write_bytes(b"x" * (3 << 20))
    for number in range(5):
        os.link(worker / "one", worker / f"name{number}")
    wait_until(lambda: (info(node, worker).used_bytes or 0) >= 3 << 20)
    assert (info(node, worker).used_bytes or 0) < LIMIT_BYTES
    assert node.events("quota-reached") == []


@pytest.mark.promise("quota-measured")
def test_a_limit_holds_after_a_restart(node: Node, worker: Path) -> None:
    fill(node, worker)
    node.stop()
    node.start()
    node.wait_event("quota-reached", path="work/worker_1")
    assert refused(lambda: (worker / "new").touch())


@pytest.mark.promise("quota-shown")
def test_usage_and_limit_are_shown(node: Node, worker: Path) -> None:
    (node.work / "driver_1").mkdir()
    (node.work / "driver_1/file").write_bytes(b"x" * (1 << 20))
    fill(node, worker)
    wait_until(lambda: (info(node, worker).used_bytes or 0) >= len(MUCH))  # it may have been looked at in the middle
    found = info(node, worker)
    assert found.max_bytes == LIMIT_BYTES
    assert len(MUCH) <= (found.used_bytes or 0) < len(MUCH) + (1 << 20)
    assert info(node, node.work / "driver_1").max_bytes == 0
    wait_until(lambda: info(node, node.work / "driver_1").used_bytes is not None)
    assert "6.0 MiB of 4.0 MiB" in holdfast("workdir", "ls", "--socket", node.socket)


@pytest.mark.promise("quota")
def test_who_has_too_many_files_makes_no_more(make_node: NodeFactory) -> None:
    node = make_node(roles__worker__max_files=100).start()
    worker = node.work / "worker_1"
    worker.mkdir()
    for number in range(40):
        (worker / f"file{number}").touch()
        (worker / f"directory{number}").mkdir()
        os.link(worker / "file0", worker / f"name{number}")
    wait_until(lambda: (info(node, worker).used_files or 0) > 80)
    assert node.events("quota-reached") == []
    for number in range(40):
        if refused(partial((worker / f"link{number}").symlink_to, "x")):  # the limit may be noticed before the last
            break
    event = node.wait_event("quota-reached", path="work/worker_1")
    assert event["used_files"] > event["limit_files"] == 100
    assert refused(lambda: (worker / "new").touch())
    assert refused(lambda: (worker / "new").mkdir())
    assert info(node, worker).max_files == 100
    assert "of 100 files" in holdfast("workdir", "ls", "--socket", node.socket)
    seen = os.statvfs(worker)
    assert (seen.f_files, seen.f_favail) == (100, 0)
    assert seen.f_blocks == os.statvfs(node.store).f_blocks
    for link in worker.glob("link*"):
        link.unlink()
    wait_below(node)
    (worker / "new").touch()


@pytest.mark.promise("quota-counted")
def test_what_is_allocated_beyond_the_end_of_a_copy_counts(node: Node, worker: Path) -> None:
    (node.checkpoints / "object").write_bytes(b"x" * 5000)
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))
    copy = worker / "localState/object"
    assert copy.read_bytes() == b"x" * 5000
    with copy.open("rb+", buffering=0) as file:
        file.write(b"x" * 5000)
        fallocate(file.fileno(), KEEP_SIZE, len(MUCH))
    assert copy.stat().st_size == 5000
    node.wait_event("quota-reached", path="work/worker_1")
    os.truncate(copy, 5000)
    wait_below(node)


@pytest.mark.promise("quota-shown")
def test_df_shows_the_limit(node: Node, worker: Path) -> None:
    (worker / "half").write_bytes(b"x" * (2 << 20))
    wait_until(lambda: (info(node, worker).used_bytes or 0) >= 2 << 20)
    size, free = subprocess.check_output(["df", "--output=size,avail", "-B1", worker], text=True).split()[-2:]
    assert int(size) == LIMIT_BYTES
    assert (1 << 20) < int(free) <= (2 << 20)
    everything = os.statvfs(node.checkpoints)
    assert everything.f_blocks == os.statvfs(node.store).f_blocks
    fill(node, worker)
    assert os.statvfs(worker / "tmp").f_bavail == 0
