"""Files with a name in a store and one in a working directory, as Spark's state files have them (``holdfast-spark.jar``)."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.kernel.needs import needs_takeover
from tests.support.users.privileges import MALLORY

BYTES = b"sorted strings " * 5000


class Linked:
    """A file of a checkpoint with a private name in a working directory."""

    def __init__(self, node: Node, remote_files: Path, partition: int) -> None:
        name = f"q/state/0/{partition}/SSTs/000012-f6f97f90-299f-4ba3-8480-cc49015f5456.sst"
        self.node, self.stored, self.object = node, node.checkpoints / name, remote_files / name
        self.private = node.work / f"driver_1/tmp/{partition}/000012.sst"
        self.stored.parent.mkdir(parents=True)
        self.private.parent.mkdir()

    def link(self, source: Path, *, by_temporary_name: bool = False) -> None:
        """Link it from ``source`` to the other name."""
        target = self.private if source == self.stored else self.stored
        if by_temporary_name:
            temporary = target.with_name(f".{target.name}.7b0fd6cd-9b7f-4a1c-a0fb-57b3f2b8f1aa.tmp")
            os.link(source, temporary)
            temporary.rename(target)
        else:
            os.link(source, target)
        assert self.stored.stat().st_ino == self.private.stat().st_ino
        assert self.object.read_bytes() == BYTES, "the link has returned, so the store has it"

    def is_whole(self, path: Path) -> bool:
        return path.read_bytes() == BYTES and path.stat().st_nlink == 1 and not self.node.events("quarantined")


@pytest.fixture(params=[True, False], ids=["passthrough", "through the daemon"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    node = make_node(mount__passthrough=request.param, roles__driver__max_bytes=1 << 30)
    node.supervised, node.outlives_daemon = True, False
    return node.start()


@pytest.fixture(params=[False, True], ids=["linked", "linked by a temporary name"])
def both(node: Node, remote_files: Path, request: pytest.FixtureRequest) -> list[Linked]:
    """One file that was restored, and one of a snapshot, which ``holdfast-spark.jar`` links by a temporary name."""
    (node.work / "driver_1").mkdir()
    restored, snapshot = Linked(node, remote_files, 0), Linked(node, remote_files, 1)
    restored.stored.write_bytes(BYTES)
    restored.link(restored.stored)
    snapshot.private.write_bytes(BYTES)
    snapshot.link(snapshot.private, by_temporary_name=request.param)
    return [restored, snapshot]


def append(path: Path) -> bytes:
    with path.open("ab") as file:
        file.write(b"more")
    return BYTES + b"more"


def overwrite(path: Path) -> bytes:
    path.write_bytes(b"other")
    return b"other"


def write_through_a_mapping(path: Path) -> bytes:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[:3] = b"xyz"
    return b"xyz" + BYTES[3:]


def truncate(path: Path) -> bytes:
    os.truncate(path, 100)
    return BYTES[:100]


def delete_as_rocksdb_does(path: Path) -> bytes:
    """A large file is moved to the trash and truncated piece by piece."""
    trash = path.with_suffix(".sst.trash")
    path.rename(trash)
    for size in (50_000, 20_000, 0):
        with trash.open("r+b") as file:
            file.truncate(size)
    trash.rename(path)
    return b""


CHANGES: list[Callable[[Path], bytes]] = [append, overwrite, write_through_a_mapping, truncate]


@pytest.mark.promise("cross-links")
def test_what_is_written_by_one_name_is_not_in_the_other(both: list[Linked]) -> None:
    for linked, change in itertools.product(both, (*CHANGES, delete_as_rocksdb_does)):
        written = change(linked.private)
        assert linked.private.read_bytes() == written
        assert linked.is_whole(linked.stored), change
        assert linked.object.read_bytes() == BYTES
        linked.private.unlink()
        linked.link(linked.stored)
    for linked, change in itertools.product(both, CHANGES):
        written = change(linked.stored)
        assert (linked.stored.read_bytes(), linked.object.read_bytes()) == (written, written)
        assert linked.is_whole(linked.private), change
        linked.stored.unlink()
        linked.link(linked.private)


@pytest.mark.promise("cross-links")
def test_a_pinned_object_is_here_again_at_once(both: list[Linked]) -> None:
    linked = both[0]
    copy = linked.node.backing(linked.stored)
    with linked.node.client() as client:
        client.pin(str(linked.stored.parent))
    inode = copy.stat().st_ino

    def is_another_file() -> bool:
        with suppress(FileNotFoundError):  # between the two there is none
            return copy.stat().st_ino != inode
        return False

    append(linked.private)
    wait_until(is_another_file)
    assert copy.read_bytes() == BYTES
    assert linked.is_whole(linked.stored)


@pytest.mark.promise("cross-links")
def test_two_who_write_at_once_by_either_name_write_two_files(both: list[Linked]) -> None:
    linked = both[0]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(30):
            list(pool.map(lambda path: path.write_bytes(str(path).encode()), (linked.private, linked.stored)))
            for path in (linked.private, linked.stored):
                assert path.read_bytes() == str(path).encode()
            assert linked.object.read_bytes() == str(linked.stored).encode()
            for path in (linked.private, linked.stored):
                path.unlink()
            linked.private.write_bytes(BYTES)
            linked.link(linked.private)


@pytest.mark.promise("cross-links")
def test_a_file_that_was_just_separated_and_is_linked_again_can_be_written_by_another_thread(both: list[Linked]) -> None:
    linked = both[0]
    append(linked.private)
    linked.private.write_bytes(BYTES)
    linked.stored.unlink()
    linked.link(linked.private)
    with ThreadPoolExecutor(1) as another:
        assert another.submit(append, linked.private).result() == linked.private.read_bytes()
    assert linked.is_whole(linked.stored)


@needs_takeover
@pytest.mark.promise("cross-links")
def test_what_is_open_is_not_changed_under_its_reader_nor_later_by_one_who_comes_after_a_takeover(
    both: list[Linked],
) -> None:
    """A mapping counts, though its descriptor is closed."""
    node = both[0].node
    for linked in both:
        with linked.private.open("rb") as reader, mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            reader.close()
            for _ in range(2):
                for path, change in itertools.product((linked.private, linked.stored), (append, truncate)):
                    assert refused(lambda path=path, change=change: change(path)) == errno.EBUSY  # type: ignore[misc]
                assert mapping[:] == BYTES
                node.kill_daemon()
        append(linked.private)
        assert linked.is_whole(linked.stored)
        linked.private.unlink()
        linked.link(linked.stored)
    node.stop()
    node.start()
    for linked in both:
        append(linked.private)
        assert linked.is_whole(linked.stored)
        assert linked.object.read_bytes() == BYTES


@pytest.mark.promise("cross-link-room")
def test_a_linked_copy_takes_its_room_until_the_private_name_goes(both: list[Linked]) -> None:
    node = both[0].node

    def evicted() -> int:
        with node.client() as client:
            return list(client.evict(str(node.checkpoints)))[-1].done

    assert evicted() == 0
    with node.client() as client:
        wait_until(lambda: (client.workdirs()[0].used_bytes or 0) >= 2 * len(BYTES))
        client.release("driver", "1")
        client.acquire("driver", "1", os.getpid())
    wait_until(lambda: {linked.stored.stat().st_nlink for linked in both} == {1})
    assert not any(linked.private.exists() for linked in both)
    assert evicted() == 2


@pytest.mark.promise("cross-link-sent")
def test_an_object_that_is_not_here_is_fetched_and_checked_before_it_is_linked(both: list[Linked]) -> None:
    linked, node = both[0], both[0].node
    linked.private.unlink()
    with node.client() as client:
        list(client.evict(str(linked.stored)))
    flip(linked.object)
    assert refused(lambda: linked.link(linked.stored)) == errno.EIO
    assert not linked.private.exists()
    flip(linked.object)
    linked.link(linked.stored)
    assert node.requests()["GET"] >= 2
    linked.private.unlink()
    node.stop()
    flip(node.backing(linked.stored))
    node.start()
    linked.link(linked.stored)
    assert linked.private.read_bytes() == BYTES
    assert [event["path"] for event in node.events("quarantined")] == [str(linked.stored.relative_to(node.mountpoint))]


@pytest.mark.promise("cross-link-rights")
def test_nobody_keeps_what_is_another_users_by_such_a_link(both: list[Linked]) -> None:
    """Not even one who may read and write it, whom the kernel would let."""
    stored, own = both[0].stored, both[0].node.work / "malice"
    own.mkdir()
    for directory in (own, stored.parent):
        directory.chmod(0o777)
    stored.chmod(0o666)
    (own / "theirs").write_bytes(BYTES)
    (own / "theirs").chmod(0o666)
    MALLORY.do(lambda: check(refused(lambda: os.link(stored, own / "kept")) == errno.EPERM))
    MALLORY.do(lambda: check(refused(lambda: os.link(own / "theirs", stored.parent / "kept")) == errno.EPERM))
    stored.chmod(0o600)
    MALLORY.do(lambda: check(refused(lambda: os.link(stored, own / "kept")) == errno.EPERM))
    assert not (own / "kept").exists()


def refused(action: Callable[[], object]) -> int:
    """Return the number of the error with which the action fails; 0 if it does not."""
    try:
        action()
    except OSError as problem:
        return problem.errno or 0
    return 0


def flip(path: Path) -> None:
    """Change one bit, and nothing else: not even the time of modification."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def check(fact: bool) -> None:
    assert fact
