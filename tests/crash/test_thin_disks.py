"""A disk below the file system that runs out: it takes bytes, and refuses them when the kernel writes them out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import LostBytesError
from tests.conftest import NodeFactory
from tests.mount.test_capacity import outcome_of
from tests.mount.test_flush_and_drain import flush
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.recorded_disk import RecordedDisk
from tests.support.kernel.page_cache import forget

DATA = os.urandom(200_000)


@pytest.fixture
def thin_disk(workspace: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk("ext4", workspace / "disk", workspace / "disk.img") as disk:
        yield disk


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, thin_disk: RecordedDisk, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = make_node(mount__passthrough=request.param)
    node.store = thin_disk.path / "store"
    node.settings["store.directory"] = node.store
    node.start()
    (node.work / "worker_1").mkdir()
    yield node
    node.clean_up()  # before the disk goes


def write_out(disk: RecordedDisk) -> None:
    """Let the kernel write out what it has for a disk, which refuses some."""
    disk.write_out()
    assert disk.failures()[1] > 0


def forget_loss(path: Path) -> None:
    """Let the kernel forget what it has of a file, also that the disk has refused some of it, as without the inode."""
    with suppress(OSError):  # it tells that, once
        forget(path)
    forget(path)


def reopen(path: Path) -> None:
    """Open a file for writing, write nothing, and close it."""
    os.close(os.open(path, os.O_WRONLY))


def sync(path: Path) -> None:
    with path.open("r+b", buffering=0) as file:
        os.fsync(file.fileno())


@pytest.mark.promise("lost-bytes")
@pytest.mark.parametrize("is_forgotten", [False, True], ids=["told by the kernel", "told by the digest"])
def test_a_copy_of_which_the_disk_has_refused_bytes_does_not_leave_its_store(
    node: Node, thin_disk: RecordedDisk, remote_files: Path, is_forgotten: bool
) -> None:
    """Gain: the object was deleted, and what had been moved was other bytes, at the second try in any case."""
    path, target = node.checkpoints / "object", node.work / "worker_1/localState/object"
    thin_disk.run_out()
    path.write_bytes(DATA)
    backing = node.backing(path)
    write_out(thin_disk)
    if is_forgotten:
        forget_loss(backing)
    for _ in range(2):
        assert outcome_of(partial(os.rename, path, target)) == errno.EIO
        assert objects(remote_files) == {"object": DATA}
    thin_disk.get_room()
    path.rename(target)
    forget(node.backing(target))
    assert target.read_bytes() == DATA
    wait_until(lambda: objects(remote_files) == {})


@pytest.mark.promise("lost-bytes")
@pytest.mark.parametrize("how", ["close", "fsync", "rename", "link", "async"])
def test_a_file_of_which_the_disk_has_refused_bytes_is_not_sent_until_it_is_written_anew(
    node: Node, thin_disk: RecordedDisk, remote_files: Path, how: str
) -> None:
    """Gain: what the kernel had dropped was sent as it was on the disk, and a close after the one that failed succeeded."""
    if how == "async":
        node.stop()
        node.settings["stores.checkpoints.durability"] = "async"
        node.start()
    path, temporary = node.checkpoints / "written", node.checkpoints / "written.tmp"
    written = temporary if how in ("rename", "link") else path
    publish = {
        "close": partial(reopen, path),
        "async": partial(reopen, path),
        "fsync": partial(sync, path),
        "rename": partial(os.rename, temporary, path),
        "link": partial(os.link, temporary, path),
    }[how]
    thin_disk.run_out()
    fd = os.open(written, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, DATA)
    write_out(thin_disk)
    assert how != "fsync" or outcome_of(partial(os.fsync, fd)) == errno.EIO
    assert outcome_of(partial(os.close, fd)) == (0 if written == temporary else errno.EIO)
    assert [outcome_of(publish) for _ in range(2)] == [errno.EIO] * 2
    assert [event["path"] for event in node.events("bytes-lost")] == [f"checkpoints/{written.name}"]
    node.stop()
    node.start()
    if how == "close":
        assert [step.problem for step in flush(node)] == [str(LostBytesError())]
    assert [outcome_of(publish) for _ in range(2)] == [errno.EIO] * 2
    assert os.listdir(node.checkpoints) == [written.name]
    assert objects(remote_files) == {}
    thin_disk.get_room()
    written.write_bytes(DATA)
    if written == temporary:
        publish()
    wait_until(lambda: objects(remote_files) == {"written": DATA})
    assert node.events("bytes-lost") == []


@pytest.mark.promise("lost-bytes")
def test_each_fsync_of_a_file_of_a_process_tells_that_it_has_lost_bytes(
    node: Node, thin_disk: RecordedDisk, remote_files: Path
) -> None:
    """Gain: after the first fsync, as on any disk, all was well, and a rename into a store sent what was on the disk."""
    path = node.work / "worker_1/localState/file"
    thin_disk.run_out()
    with path.open("wb", buffering=0) as file:
        file.write(DATA)
        assert [outcome_of(partial(os.fsync, file.fileno())) for _ in range(2)] == [errno.EIO] * 2
        assert path.read_bytes() == DATA, "it is in memory"
    assert outcome_of(partial(os.rename, path, node.checkpoints / "file")) == errno.EIO
    assert objects(remote_files) == {}
    thin_disk.get_room()
    path.write_bytes(DATA)
    sync(path)
    path.rename(node.checkpoints / "file")
    assert objects(remote_files) == {"file": DATA}
