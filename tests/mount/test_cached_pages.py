"""Pages that the kernel keeps of files that the daemon serves: a write leaves them, nobody reads those of other bytes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.kernel import Machine, forecast
from tests.conftest import NodeFactory
from tests.mount.test_faults import flip
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import as_nobody, needs_root

BLOCK = 4096
needs_c_module = pytest.mark.skipif("C module" in forecast(Machine.this(), wanted=True), reason="the C module is not built")


@pytest.fixture(params=[False, True], ids=["daemon-io", "passthrough"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    return make_node(mount__passthrough=request.param).start()


@pytest.fixture
def reader(make_node: NodeFactory) -> Node:
    """A node that serves all data by its daemon, and asks the store each time."""
    return make_node("b", mount__passthrough=False, remote__metadata_ttl_seconds=0).start()


def commit(path: Path, data: bytes) -> None:
    """Replace a file, as Spark does."""
    path.with_suffix(".tmp").write_bytes(data)
    path.with_suffix(".tmp").rename(path)


@contextmanager
def remembered(path: Path) -> Iterator[None]:
    """Make the kernel keep its inode with all pages, although nobody has the file open."""
    fd = os.open(path, os.O_PATH)
    try:
        yield
    finally:
        os.close(fd)


class Directory:
    """An open directory that is listed again and again, without a look at its attributes."""

    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.opendir.restype = _libc.readdir.restype = ctypes.c_void_p
    _libc.opendir.argtypes = (ctypes.c_char_p,)
    _libc.readdir.argtypes = _libc.rewinddir.argtypes = _libc.closedir.argtypes = (ctypes.c_void_p,)
    _NAME = 19

    def __init__(self, path: Path) -> None:
        self._stream = self._libc.opendir(os.fsencode(path))

    def names(self) -> list[str]:
        self._libc.rewinddir(self._stream)
        found = []
        while entry := self._libc.readdir(self._stream):
            found.append(os.fsdecode(ctypes.string_at(entry + self._NAME)))
        return sorted(found)[2:]

    def close(self) -> None:
        self._libc.closedir(self._stream)


def overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(data)


def evict(node: Node, path: Path) -> None:
    with node.client() as client:
        assert list(client.evict(str(path)))[-1].done == 1


@needs_c_module
def test_a_read_after_a_write_asks_the_daemon_for_nothing(make_node: NodeFactory) -> None:
    node = make_node(mount__passthrough=False).start()
    with (node.work / "file").open("w+b", buffering=0) as file:
        file.write(bytes(8 * BLOCK))
        os.pread(file.fileno(), 8 * BLOCK, 0)
        before = node.status().kernel_requests
        for number in range(8):
            os.pwrite(file.fileno(), b"%d" % number * BLOCK, number * BLOCK)
            assert os.pread(file.fileno(), BLOCK, number * BLOCK) == b"%d" % number * BLOCK
        after = node.status().kernel_requests
    assert after["WRITE"] - before["WRITE"] == 8
    for asked in ("READ", "GETATTR", "GETXATTR"):
        assert after.get(asked, 0) == before.get(asked, 0), asked


def test_names_of_one_file_share_its_pages(node: Node) -> None:
    first, second = node.work / "first", node.work / "second"
    first.write_bytes(b"1" * 4 * BLOCK)
    os.link(first, second)
    with first.open("r+b", buffering=0) as one, mmap.mmap(one.fileno(), 4 * BLOCK) as mapped:
        assert mapped[:BLOCK] == os.pread(one.fileno(), BLOCK, 0) == b"1" * BLOCK
        with second.open("r+b", buffering=0) as other:
            other.write(b"2" * BLOCK)
            assert mapped[:BLOCK] == os.pread(one.fileno(), BLOCK, 0) == b"2" * BLOCK
            mapped[:BLOCK] = b"3" * BLOCK
            assert os.pread(other.fileno(), BLOCK, 0) == b"3" * BLOCK
        os.truncate(second, 10)
        assert os.pread(one.fileno(), BLOCK, 0) == b"3" * 10
        os.truncate(second, 2 * BLOCK)
        assert os.pread(one.fileno(), 4 * BLOCK, 0) == b"3" * 10 + bytes(2 * BLOCK - 10)
        assert mapped[:BLOCK] == b"3" * 10 + bytes(BLOCK - 10)
        with second.open("wb"):
            assert os.pread(one.fileno(), BLOCK, 0) == b""


def test_direct_writes_and_holes_are_seen_by_who_reads_pages(node: Node) -> None:
    path = node.work / "file"
    path.write_bytes(b"1" * 4 * BLOCK)
    with path.open("r+b", buffering=0) as reader:
        assert reader.read(4 * BLOCK) == b"1" * 4 * BLOCK
        direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        with mmap.mmap(-1, BLOCK) as aligned:
            aligned[:] = b"2" * BLOCK
            os.pwritev(direct, [aligned], BLOCK)
        os.close(direct)
        assert os.pread(reader.fileno(), BLOCK, BLOCK) == b"2" * BLOCK
        with (node.work / "other").open("w+b", buffering=0) as other:
            other.write(b"3" * BLOCK)
            assert os.copy_file_range(other.fileno(), reader.fileno(), BLOCK, 0, 2 * BLOCK) == BLOCK
        assert os.pread(reader.fileno(), 2 * BLOCK, BLOCK) == b"2" * BLOCK + b"3" * BLOCK


@pytest.mark.promise("replaceable")
def test_pages_of_an_evicted_copy_are_not_those_of_the_next_version(make_node: NodeFactory, reader: Node) -> None:
    """The versions have the same size and node: only the daemon can tell them apart."""
    writer = make_node("a").start()
    (writer.checkpoints / "state").mkdir()
    path = reader.checkpoints / "state/5.zip"
    commit(writer.checkpoints / "state/5.zip", b"0" * BLOCK)
    with remembered(path):
        for data in (b"1" * BLOCK, b"2" * BLOCK, b"3" * BLOCK):
            commit(writer.checkpoints / "state/5.zip", data)
            assert path.read_bytes() == data
            inode = path.stat().st_ino
            evict(reader, path)
            assert path.stat().st_ino == inode


@pytest.mark.promise("replaceable")
def test_who_has_a_version_open_keeps_its_pages_and_nobody_else_gets_them(make_node: NodeFactory, reader: Node) -> None:
    writer = make_node("a").start()
    (writer.checkpoints / "state").mkdir()
    path = reader.checkpoints / "state/5.zip"
    commit(writer.checkpoints / "state/5.zip", b"1" * 2 * BLOCK)
    with path.open("rb", buffering=0) as before, mmap.mmap(before.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:BLOCK] == b"1" * BLOCK
        commit(writer.checkpoints / "state/5.zip", b"2" * 2 * BLOCK)
        with path.open("rb") as after:
            assert after.read() == b"2" * 2 * BLOCK
            assert before.read() == mapped[:] == b"1" * 2 * BLOCK


def test_copies_that_arrive_leave_no_pages_of_an_earlier_version(make_node: NodeFactory) -> None:
    writer = make_node("a").start()
    reader = make_node(
        "b", mount__passthrough=False, remote__metadata_ttl_seconds=0, remote__read_while_arriving_bytes=1 << 20
    ).start()
    (writer.checkpoints / "state").mkdir()
    path = reader.checkpoints / "state/5.zip"
    commit(writer.checkpoints / "state/5.zip", bytes(20 << 20))
    with remembered(path):
        for data in (b"1" * (20 << 20), b"2" * (20 << 20)):
            commit(writer.checkpoints / "state/5.zip", data)
            with path.open("rb") as file:
                file.seek(-BLOCK, os.SEEK_END)
                assert file.read() == data[-BLOCK:]
                assert path.read_bytes() == data
            evict(reader, path)


@pytest.mark.promise("corrupt-copy")
def test_pages_of_a_file_that_turns_out_to_be_corrupt_are_not_read_any_more(make_node: NodeFactory) -> None:
    node = make_node(mount__passthrough=False).start()
    path = node.checkpoints / "state.zip"
    path.write_bytes(b"1" * 2 * BLOCK)
    backing = node.backing(path)
    with path.open("rb", buffering=0) as file:
        assert file.read(BLOCK) == b"1" * BLOCK
        flip(backing)
        with node.client() as client:
            list(client.verify(str(path)))

        def is_refused() -> bool:
            try:
                os.pread(file.fileno(), BLOCK, 0)
            except OSError as problem:
                return problem.errno == errno.EIO
            return False

        wait_until(is_refused)


def test_the_next_daemon_does_not_rely_on_what_the_kernel_has_of_a_copy(make_node: NodeFactory) -> None:
    """The earlier one fetched another version, and died before anybody opened it."""
    writer = make_node("a").start()
    reader = make_node("b", mount__passthrough=False, remote__metadata_ttl_seconds=0)
    reader.supervised = True
    reader.start()
    (writer.checkpoints / "state").mkdir()
    path = reader.checkpoints / "state/5.zip"
    commit(writer.checkpoints / "state/5.zip", b"1" * BLOCK)
    with remembered(path):
        assert path.read_bytes() == b"1" * BLOCK
        evict(reader, path)
        commit(writer.checkpoints / "state/5.zip", b"2" * BLOCK)
        path.stat()
        with reader.client() as client:
            assert list(client.prefetch(str(path)))[-1].done == 1
        reader.kill_daemon()
        assert path.read_bytes() == b"2" * BLOCK


def test_a_listing_that_the_kernel_keeps_follows_what_the_daemon_does_by_itself(make_node: NodeFactory) -> None:
    node = make_node(mount__passthrough=False).start()
    directory = Directory(node.work)
    with node.client() as client:
        for number in range(3):
            assert directory.names() == [f"driver_{before}" for before in range(number)]
            client.acquire("driver", str(number), os.getpid())
    directory.close()


@needs_c_module
@pytest.mark.parametrize("length", [BLOCK, 1 << 20])
def test_data_of_a_complete_file_is_served_without_python(make_node: NodeFactory, length: int) -> None:
    """Short requests at once, long ones and what is not in the page cache by threads."""
    node = make_node(mount__passthrough=False)
    node.faults = ["no_data_by_python"]
    node.start()
    path, data = node.work / "file", os.urandom(4 << 20)
    with path.open("w+b", buffering=0) as file:
        for offset in range(0, len(data), length):
            assert os.pwrite(file.fileno(), data[offset : offset + length], offset) == length
    backing = node.backing(path)
    assert backing.read_bytes() == data
    with backing.open("rb") as there:
        os.fsync(there.fileno())
        os.posix_fadvise(there.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with path.open("rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for offset in range(0, len(data), length):
            assert os.pread(file.fileno(), length, offset) == data[offset : offset + length]
        assert os.pread(file.fileno(), length, len(data) - 10) == data[-10:]
        assert os.pread(file.fileno(), length, len(data)) == b""
        assert mapped[:] == data


@needs_c_module
def test_a_long_write_of_which_the_disk_takes_a_part_is_as_on_the_disk(make_node: NodeFactory) -> None:
    """The daemon may not write beyond a limit, as on a full disk. Python gets the whole request, also what was written."""
    node = make_node(mount__passthrough=False).start()
    path, data, start = node.work / "file", os.urandom(2 << 20), 1 << 30
    path.touch()
    limit = start + len(data) - (1 << 18)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    with path.open("r+b", buffering=0) as file:
        assert os.pwrite(file.fileno(), data, start) == len(data) - (1 << 19)
        with pytest.raises(OSError, match="File too large"):
            os.pwrite(file.fileno(), data, limit)
    with node.backing(path).open("rb") as backing:
        backing.seek(start)
        assert backing.read() == data[: limit - start]


@needs_c_module
def test_a_file_that_has_arrived_is_served_without_python(make_node: NodeFactory, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    (make_node("writer").start().checkpoints / "large").write_bytes(data)
    node = make_node(mount__passthrough=False, remote__read_while_arriving_bytes=1 << 20)
    node.faults, node.environment[ARMED] = ["no_data_by_python"], str(tmp_path / "armed")
    node.start()
    with (node.checkpoints / "large").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), BLOCK, len(data) - BLOCK) == data[-BLOCK:]
        wait_until(lambda: not node.status().fetching)
        assert os.pread(file.fileno(), BLOCK, 0) == data[:BLOCK]  # Python learns that all of it is here
        (tmp_path / "armed").touch()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert file.read() == data


@needs_c_module
def test_files_that_are_open_over_a_takeover_are_served_without_python_again(
    make_node: NodeFactory, remote_files: Path
) -> None:
    node = make_node(mount__passthrough=False)
    node.faults, node.supervised = ["no_data_by_python"], True
    node.start()
    for path in (node.work / "file", node.checkpoints / "object"):
        path.write_bytes(b"1" * BLOCK)
        with path.open("r+b", buffering=0) as file, path.open("rb", buffering=0) as other:
            node.kill_daemon()
            assert os.pwrite(file.fileno(), b"2" * BLOCK, BLOCK) == BLOCK
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(other.fileno(), 3 * BLOCK, 0) == b"1" * BLOCK + b"2" * BLOCK
    assert (remote_files / "object").read_bytes() == b"1" * BLOCK + b"2" * BLOCK


@needs_root
def test_the_kernel_reads_ahead_in_large_pieces(make_node: NodeFactory) -> None:
    node = make_node(mount__passthrough=False).start()
    path = node.work / "file"
    path.write_bytes(bytes(8 << 20))
    assert "READ" not in node.status().kernel_requests
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(BLOCK):
            pass
    assert 16 <= node.status().kernel_requests["READ"] <= 24  # of 512 KiB, and smaller ones at the beginning


@pytest.mark.promise("changes-sent")
@pytest.mark.parametrize("length", [10, 1 << 20])
def test_what_is_written_without_python_is_sent(make_node: NodeFactory, remote_files: Path, length: int) -> None:
    node = make_node(mount__passthrough=False).start()
    path = node.checkpoints / "file"
    path.write_bytes(b"1" * length)
    with path.open("r+b", buffering=0) as file:
        assert file.read() == b"1" * length
        file.seek(0)
        file.write(b"2" * length)
        os.fsync(file.fileno())
        assert (remote_files / "file").read_bytes() == b"2" * length
        os.pwrite(file.fileno(), b"3", length)
    assert (remote_files / "file").read_bytes() == b"2" * length + b"3"


@needs_root
@pytest.mark.parametrize("length", [1, 1 << 20])
def test_who_writes_without_python_loses_set_id_bits(make_node: NodeFactory, length: int) -> None:
    node = make_node(mount__passthrough=False).start()
    path = node.work / "file"
    path.touch()
    with path.open("r+b", buffering=0) as file:
        file.write(b"by root")
        os.fchmod(file.fileno(), 0o6777)
        file.write(b"by root")
        assert stat.S_IMODE(path.stat().st_mode) == 0o6777
    as_nobody(lambda: overwrite(path, bytes(length)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o777
