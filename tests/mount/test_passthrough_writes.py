"""Writes past the daemon, and names that change under a file that is open: no byte is taken for another."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import mounted_image


def rename(path: Path) -> Path:
    return path.rename(path.with_name("final"))


def link(path: Path) -> Path:
    os.link(path, path.with_name("final"))
    return path.with_name("final")


def close_another(path: Path) -> Path:
    """The kernel sends FLUSH: what was written until now is sent, and the file stays open for writing."""
    with path.open("r+b"):
        return path


@pytest.mark.promise("written-after-send")
@pytest.mark.parametrize("durability", ["commit", "async"])
@pytest.mark.parametrize("change", [rename, link, close_another])
@pytest.mark.parametrize("name", ["first", "first.tmp"])
def test_what_is_written_after_a_send_is_kept_after_a_crash(
    make_node: NodeFactory, remote_files: Path, name: str, change: Callable[[Path], Path], durability: str
) -> None:
    node = make_node(checkpoints__durability=durability).start()
    file = os.open(node.checkpoints / name, os.O_CREAT | os.O_WRONLY)
    os.write(file, b"sent, ")
    path = change(node.checkpoints / name)
    if not path.name.endswith(".tmp"):
        wait_until(lambda: objects(remote_files).get(path.name) == b"sent, ")
    os.write(file, b"not sent")
    node.kill()
    with suppress(OSError):  # nobody is there to answer
        os.close(file)
    node.start()
    assert path.read_bytes() == b"sent, not sent"
    assert node.events("quarantined") == []
    with path.open("r+b") as again:
        os.fsync(again.fileno())
    if not path.name.endswith(".tmp"):
        assert objects(remote_files)[path.name] == b"sent, not sent"


def test_a_rename_does_not_hide_that_another_name_was_not_sent(node: Node, remote_files: Path) -> None:
    first, second = node.checkpoints / "first", node.checkpoints / "second"
    first.write_bytes(b"old")
    os.link(first, second)
    with first.open("r+b", buffering=0) as file:
        file.write(b"new")
        first.rename(node.checkpoints / "third")
        assert objects(remote_files)["third"] == b"new"
    assert objects(remote_files)["second"] == b"new"
    assert node.status().unsent == []


@pytest.mark.promise("written-after-send")
def test_a_write_is_sent_though_the_time_was_set_back(node: Node, remote_files: Path) -> None:
    path = node.checkpoints / "file"
    path.write_bytes(b"old")
    stat = path.stat()
    with path.open("r+b", buffering=0) as file:
        file.write(b"new")
        os.utime(file.fileno(), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert objects(remote_files) == {"file": b"new"}
    assert path.read_bytes() == b"new"


@pytest.mark.promise("changes-sent")
@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_mapping_that_goes_on_after_close_leaves_nothing_unsent(
    node: Node, remote_files: Path, *, at_the_end: bool
) -> None:
    """The kernel tells only of the first write into a page: the second here leaves no trace."""
    path = node.checkpoints / "mapped"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 8192)
        mapping[4096:4101] = b"first"
    assert objects(remote_files)["mapped"][4096:4101] == b"first"
    mapping[4096:4101] = b"later"
    mapping.close()
    if not at_the_end:
        wait_until(lambda: objects(remote_files)["mapped"][4096:4101] == b"later")
    node.stop()
    node.start()
    assert path.read_bytes()[4096:4101] == b"later"
    assert node.events("quarantined") == []


@pytest.mark.parametrize("kind", ["ext3", "ext4"])
def test_a_write_in_the_same_tick_as_a_send_is_seen(
    make_node: NodeFactory, workspace: Path, remote_files: Path, kind: str
) -> None:
    """Linux gives ext3 coarse times to this day, and gave them to all file systems before 6.13."""
    with mounted_image(kind, workspace / "disk", 128 << 20) as disk:
        node = make_node(store__directory=disk / "store").start()
        path = node.checkpoints / "file"
        path.write_bytes(b"0000")
        for number in range(1, 150):
            file = os.open(path, os.O_WRONLY)
            os.pwrite(file, b"0000", 0)
            closer = threading.Thread(target=os.close, args=(os.dup(file),))
            closer.start()
            for count in range(10 * number):  # so that the last one comes at another moment of the send each time
                os.pwrite(file, b"%04d" % count, 0)
            closer.join()
            os.close(file)
            assert objects(remote_files) == {"file": b"%04d" % count}
        node.stop()


@pytest.mark.parametrize("passthrough", [True, False], ids=["passthrough", "through the daemon"])
@pytest.mark.parametrize("kind", ["ext3", "ext4"])
def test_a_new_file_keeps_the_time_of_its_creation(
    make_node: NodeFactory, workspace: Path, kind: str, *, passthrough: bool
) -> None:
    """Set an attribute, also where times are coarse: the time stays that of the creation."""
    with mounted_image(kind, workspace / "disk", 128 << 20) as disk:
        node = make_node(store__directory=disk / "store", mount__passthrough=passthrough).start()
        for number in range(20):
            path = node.work / f"file{number}"
            path.touch()
            shown_ns = path.stat().st_mtime_ns
            path.chmod(0o600)
            assert path.stat().st_mtime_ns == shown_ns
            with path.open("ab"):
                path.chmod(0o640)
            assert path.stat().st_mtime_ns == shown_ns
        node.stop()


@pytest.mark.parametrize("zone", ["checkpoints", "work/tm_1/localState"])
def test_a_file_that_was_changed_elsewhere_and_comes_back_is_not_taken_for_corrupt(node: Node, zone: str) -> None:
    (node.work / "tm_1").mkdir()
    path, elsewhere = node.mountpoint / zone / "file", node.work / "tm_1/tmp/file"
    path.write_bytes(b"as it was hashed")
    node.wait_digest(path)
    path.rename(elsewhere)
    elsewhere.write_bytes(b"changed")
    elsewhere.rename(node.work / "tm_1/localState/back")
    assert (node.work / "tm_1/localState/back").read_bytes() == b"changed"
    assert node.events("quarantined") == []
