"""Disks that can't read some blocks, or take no more writes: nothing ends the daemon, what can be served is."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.kept import keeper
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.recorded_disk import RecordedDisk
from tests.support.kernel.page_cache import cached_pages, forget

DATA = os.urandom(200_000)
_SYS_PROCESS_MADVISE = 440
_MADV_PAGEOUT = 21


@pytest.fixture
def bad_disk(workspace: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk("ext4", workspace / "disk", workspace / "disk.img") as disk:
        yield disk


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(
    make_node: NodeFactory, bad_disk: RecordedDisk, remote_files: Path, request: pytest.FixtureRequest
) -> Iterator[Node]:
    """A node whose store is on the disk, with a copy of an object that is on the disk and not in the page cache."""
    node = make_node(mount__passthrough=request.param)
    node.store = bad_disk.path / "store"
    node.settings["store.directory"] = node.store
    node.start()
    (remote_files / "object").write_bytes(DATA)
    assert (node.checkpoints / "object").read_bytes() == DATA
    forget(node.backing(node.checkpoints / "object"))
    yield node
    node.clean_up()  # before the disk goes


def page_out(pid: int, path: Path) -> None:
    """Let the kernel forget what it has of a file also where a process has mapped it (process_madvise(2))."""
    forget(path)
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(f" {path}"):
                place = (ctypes.c_size_t * 2)(int(line.partition("-")[0], 16), path.stat().st_size)  # struct iovec
                done = libc.syscall(
                    _SYS_PROCESS_MADVISE, pidfd, place, ctypes.c_size_t(1), _MADV_PAGEOUT, ctypes.c_size_t(0)
                )
                assert done == place[1], os.strerror(ctypes.get_errno())
    finally:
        os.close(pidfd)
    forget(path)


def can_not_be_read(disk: RecordedDisk, pid: int, path: Path) -> bool:
    """Let reads of a file's blocks fail, and nothing be left of it in the page cache; say whether that was reached.

    A page stays in the page cache while it is in use, and comes back when the process reads it before the disk is bad.
    """
    page_out(pid, path)
    disk.fail_reads(chain.from_iterable(extents(path)))
    if disk.failures()[0] == 0 and cached_pages(path) > 0:
        disk.fail_reads([])
        return False
    return True


def extents(path: Path) -> list[range]:
    """Return the blocks of each extent of a file, as offsets on the disk in bytes."""
    told = subprocess.run(["filefrag", "-e", "-b4096", path], check=True, capture_output=True, text=True).stdout
    rows = [line.split(":") for line in told.splitlines() if line.strip()[:1].isdigit()]
    places = [(int(row[2].split("..")[0]), int(row[3])) for row in rows]
    return [range(first * 4096, (first + count) * 4096, 4096) for first, count in places]


def blocks(path: Path) -> list[int]:
    """Return the offsets on the disk, in bytes, of the first block of each extent of a file."""
    return [extent[0] for extent in extents(path)]


_JOB = """
import os, sys
os.chdir(sys.argv[1])
while True:
    with open("state", "wb") as file:
        file.write(bytes(100_000))
        os.fsync(file.fileno())
    print("synced", flush=True)
"""
_LOOKER = """
import os, sys
os.chdir(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
os.listdir(".")
"""


@contextmanager
def program(text: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A program at work in a directory, which has written its first line."""
    command = [sys.executable, "-c", text, str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def is_read_only(directory: Path) -> bool:
    """Say whether no name can be made or removed. A time that is set tells nothing: ext4 reports no error then."""
    probe = directory / "probe"
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as problem:
        return problem.errno == errno.EROFS
    return False


def error_of_reading(path: Path) -> int:
    with pytest.raises(OSError) as caught:  # noqa: PT011 the number is the answer
        path.read_bytes()
    assert caught.value.errno is not None
    return caught.value.errno


@pytest.mark.promise("bad-blocks")
def test_a_copy_that_the_disk_can_not_read_is_fetched_again_at_its_first_open(node: Node, bad_disk: RecordedDisk) -> None:
    path = node.checkpoints / "object"
    node.stop()
    bad_disk.fail_reads(blocks(node.store / "tree/checkpoints/object"))
    node.start()
    assert path.read_bytes() == DATA
    told = node.wait_event("quarantined")
    assert (told["path"], told["why"]) == ("checkpoints/object", "the disk can't read it")
    assert bad_disk.failures()[0] > 0


@pytest.mark.promise("bad-blocks")
def test_a_copy_that_the_disk_can_not_read_any_more_is_dropped(node: Node, bad_disk: RecordedDisk) -> None:
    """The daemon sees it at once where it serves the data, else when it is asked, or by the scrub."""
    path = node.checkpoints / "object"
    bad_disk.fail_reads(blocks(node.backing(path)))
    forget(path)
    assert error_of_reading(path) == errno.EIO
    if node.status().data_mode == "passthrough":
        with node.client() as client:
            assert [step.problem for step in client.verify(str(path)) if step.problem]
    assert path.read_bytes() == DATA
    assert node.events("quarantined")[0]["why"] == "the disk can't read it"


@pytest.mark.promise("bad-blocks")
def test_a_file_of_a_process_stays_and_can_be_read_where_the_disk_can(node: Node, bad_disk: RecordedDisk) -> None:
    (node.work / "worker_1").mkdir()
    path = node.work / "worker_1/localState/file"
    path.write_bytes(DATA)
    node.wait_digest(path)
    backing = node.backing(path)
    forget(backing)
    node.stop()
    bad_disk.fail_reads(blocks(backing))
    node.start()
    with path.open("rb", buffering=0) as file:
        with suppress(OSError):
            file.read(4096)
        file.seek(len(DATA) - 100)
        assert file.read() == DATA[-100:]
    assert not node.events("quarantined")


@pytest.mark.promise("read-only-disk")
def test_a_disk_that_takes_no_more_writes_leaves_reads_working(
    node: Node, bad_disk: RecordedDisk, remote_files: Path
) -> None:
    (node.work / "worker_1").mkdir()
    mine, theirs = node.work / "worker_1/localState/file", node.checkpoints / "object"
    sent = node.checkpoints / "sent"
    for path in (mine, sent):
        path.write_bytes(b"mine")
    subprocess.run(["sync"], check=True)
    bad_disk.fail_writes()
    with mine.with_name("new").open("wb", buffering=0) as file:
        file.write(b"unwritten")
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.fsync(file.fileno())
    wait_until(lambda: is_read_only(bad_disk.path))
    (remote_files / "absent").write_bytes(b"absent")
    for _ in range(2):
        assert (mine.read_bytes(), theirs.read_bytes(), sent.read_bytes()) == (b"mine", DATA, b"mine")
        assert {"object", "sent"} <= set(os.listdir(node.checkpoints))
        assert error_of_reading(node.checkpoints / "absent") == errno.EIO
        for refused in (lambda: sent.write_bytes(b"new"), sent.unlink, (node.work / "worker_2").mkdir):
            with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
                refused()
    assert (remote_files / "sent").read_bytes() == b"mine"
    node.wait_event("disk-takes-no-writes")
    with node.client() as client:
        assert {info.draining for info in client.holdings().nodes} == {True}, "state is to go to other nodes"


@pytest.mark.promise("index-bad-blocks")
def test_an_index_that_the_disk_can_not_read_is_built_anew_and_nothing_acknowledged_is_lost(
    node: Node, bad_disk: RecordedDisk, remote_files: Path
) -> None:
    (node.work / "worker_1").mkdir()
    mine, sent = node.work / "worker_1/localState/file", node.checkpoints / "sent"
    for path in (mine, sent):
        path.write_bytes(DATA)
    node.wait_digest(mine)
    node.stop()
    index = node.store / "index/data.mdb"
    bad_disk.fail_reads(chain.from_iterable(extents(index)))
    forget(index)
    node.start()
    assert bad_disk.failures()[0] > 0
    assert [path.read_bytes() == DATA for path in (mine, sent, node.checkpoints / "object")] == [True] * 3
    assert (remote_files / "sent").read_bytes() == DATA


@pytest.mark.promise("index-bad-blocks")
def test_an_index_that_the_disk_can_not_read_any_more_ends_the_daemon_and_nobody_notices(
    make_node: NodeFactory, bad_disk: RecordedDisk, remote_files: Path
) -> None:
    """The index is mapped, so reading a bad block is a SIGBUS; the next daemon that is started builds it anew."""
    node = make_node(store__directory=bad_disk.path / "store", blobs__durability="async")
    node.store = bad_disk.path / "store"
    node.supervised = True
    node.expected_faults += ["Fatal Python error: Bus error", "most recent call first", "  File "]
    node.start()
    (node.work / "worker_1").mkdir()
    mine, sent, late = node.work / "worker_1/localState/file", node.checkpoints / "sent", node.blobs / "late"
    for path in (mine, sent, late):
        path.write_bytes(DATA)
    node.wait_digest(mine)
    first = node.pid
    with mine.open("r+b", buffering=0) as file, (node.checkpoints / "open").open("w+b", buffering=0) as unsent:
        unsent.write(b"before")
        index = node.store / "index/data.mdb"
        wait_until(lambda: can_not_be_read(bad_disk, first, index))
        assert [path.read_bytes() == DATA for path in (mine, sent, late)] == [True] * 3
        sent.rename(node.checkpoints / "moved")
        (node.checkpoints / "new").write_bytes(DATA)
        file.write(b"after")
        unsent.write(b" and after")
    assert bad_disk.failures()[0] > 0
    assert node.pid != first
    assert "damaged: the disk can't read it" in node.wait_event("index-renewed")["why"]
    assert len(node.events("taken-over")) == 1
    assert sorted(os.listdir(node.checkpoints)) == ["moved", "new", "open"]
    assert mine.read_bytes() == b"after" + DATA[5:]
    wait_until(lambda: node.status().unsent == [])
    wanted = {"moved": DATA, "new": DATA, "open": b"before and after"}
    wait_until(lambda: objects(remote_files) == wanted)  # deletions are held back for a moment
    assert objects(remote_files.with_name("blobs")) == {"late": DATA}
    node.clean_up()  # before the disk goes


@pytest.mark.promise("failed-disk")
@pytest.mark.parametrize("is_kept", [False, True], ids=["supervisor", "keeper"])
def test_nobody_waits_for_a_daemon_whose_disk_has_failed_and_nothing_committed_is_lost(
    is_kept: bool, make_node: NodeFactory, bad_disk: RecordedDisk, workspace: Path
) -> None:
    node = make_node(store__directory=bad_disk.path / "store")
    node.supervised, node.outlives_daemon = True, False
    node.expected_faults += ["has failed", "Fatal Python error: Bus error", "most recent call first", "  File "]
    with ExitStack() as stack:
        if is_kept:
            node.settings["mount.keeper"] = node.directory / "keeper"
            stack.enter_context(keeper(node.directory / "keeper"))
        node.start()
        (node.checkpoints / "committed").write_bytes(DATA)
        (node.work / "worker_1").mkdir()
        job = stack.enter_context(program(_JOB, node.work / "worker_1"))
        looker = stack.enter_context(program(_LOOKER, node.checkpoints))
        bad_disk.fail()
        _, problem = job.communicate(timeout=60)
        assert os.strerror(errno.EIO) in problem or os.strerror(errno.EROFS) in problem
        wait_until(lambda: is_read_only(bad_disk.path))  # until then a daemon may find all that it needs in memory
        node.kill_daemon()
        _, problem = looker.communicate("look\n", timeout=60)
        assert os.strerror(errno.ENOTCONN) in problem or os.strerror(errno.ECONNABORTED) in problem
        node.signal_supervisor(signal.SIGTERM)
        node.wait_end()
        node.store = node.settings["store.directory"] = workspace / "another disk"
        node.start()
        assert (node.checkpoints / "committed").read_bytes() == DATA
        node.clean_up()  # before the keeper and the disk go
