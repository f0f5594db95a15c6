"""A disk below the file system that runs out: it takes bytes, and refuses them when the kernel writes them out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_capacity import outcome_of
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.recorded_disk import RecordedDisk, sync_file_system
from tests.support.kernel.page_cache import forget

SIZE_BYTES = 200_000


@pytest.fixture
def thin_disk(workspace: Path) -> Iterator[RecordedDisk]:
    with RecordedDisk("ext4", workspace / "disk", workspace / "disk.img") as disk:
        yield disk


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, thin_disk: RecordedDisk, request: pytest.FixtureRequest) -> Iterator[Node]:
    node = make_node(mount__passthrough=request.param, integrity__check_writes_seconds=1)
    node.store = thin_disk.path / "store"
    node.settings["store.directory"] = node.store
    node.start()
    yield node
    node.clean_up()  # before the disk goes


def write_out(disk: RecordedDisk) -> None:
    """Let the kernel write out what it has for a disk, which refuses some. The daemon may have asked for that before."""
    fd = os.open(disk.path, os.O_RDONLY)
    try:
        sync_file_system(fd)
    finally:
        os.close(fd)
    assert disk.failures()[1] > 0


def drop(paths: list[Path]) -> None:
    """Let the kernel forget what it has of files, as it does when it needs memory."""
    for path in paths:
        with suppress(OSError):  # fsync tells that bytes were lost
            forget(path)
        forget(path)


@pytest.mark.promise("lost-writes")
def test_what_a_full_thin_disk_has_refused_is_fetched_again(node: Node, thin_disk: RecordedDisk, remote_files: Path) -> None:
    """Gain: closed files were read as other bytes, since digests were checked at the first use in a run alone."""
    before = [node.checkpoints / f"before{number}" for number in range(10)]
    after = [node.checkpoints / f"after{number}" for number in range(20)]
    contents = {path: os.urandom(SIZE_BYTES) for path in before + after}
    for path in before:
        path.write_bytes(contents[path])
    thin_disk.run_out()
    for path in after:
        path.write_bytes(contents[path])
    for path in before + after:
        assert path.read_bytes() == contents[path]
    backing = [node.backing(path) for path in before + after]
    write_out(thin_disk)
    wait_until(lambda: bool(node.events("disk-lost-writes")))
    drop(backing)
    assert [path.name for path in contents if path.read_bytes() != contents[path]] == []
    dropped = {os.path.basename(str(event["path"])) for event in node.events("quarantined")}
    assert dropped
    assert dropped <= {path.name for path in after}


@pytest.mark.promise("lost-writes")
def test_the_next_daemon_does_not_trust_what_is_in_memory_alone(node: Node, thin_disk: RecordedDisk) -> None:
    path, data = node.checkpoints / "object", os.urandom(SIZE_BYTES)
    thin_disk.run_out()
    path.write_bytes(data)
    backing = node.backing(path)
    write_out(thin_disk)
    wait_until(lambda: bool(node.events("disk-lost-writes")))
    node.stop()
    node.start()
    assert path.read_bytes() == data
    assert [event["path"] for event in node.events("quarantined")] == ["checkpoints/object"]
    drop([backing])
    assert path.read_bytes() == data


@pytest.mark.promise("lost-writes")
@pytest.mark.parametrize("how", ["close", "fsync", "rename", "async"])
def test_what_is_lost_while_it_is_written_is_never_an_object(
    node: Node, thin_disk: RecordedDisk, remote_files: Path, how: str
) -> None:
    """Gain: what the kernel had dropped was hashed and sent as it was on the disk, and close told of success."""
    if how == "async":
        node.stop()
        node.settings["stores.checkpoints.durability"] = "async"
        node.start()
    path, temporary = node.checkpoints / "written", node.checkpoints / "written.tmp"
    thin_disk.run_out()
    fd = os.open(temporary if how == "rename" else path, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, os.urandom(SIZE_BYTES))
    write_out(thin_disk)
    if how == "fsync":
        assert outcome_of(partial(os.fsync, fd)) == errno.EIO
    if how == "rename":
        os.close(fd)
        assert outcome_of(partial(os.rename, temporary, path)) == errno.EIO
    else:
        assert outcome_of(partial(os.close, fd)) == errno.EIO
    assert os.listdir(node.checkpoints) == []
    assert objects(remote_files) == {}
    assert len(node.events("quarantined")) == 1
    path.write_bytes(b"")  # which takes no blocks
    assert path.read_bytes() == b""
