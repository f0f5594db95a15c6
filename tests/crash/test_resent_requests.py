"""The daemon is killed between the effect of a request and its answer: the next one answers, and the effect is there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE, rename_with_flags
from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.faults.crash_points import POINT, POINTS
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, wait_until

_XATTR = "user.test"


def dying(make_node: NodeFactory, point: str, **settings: object) -> Node:
    """A supervised node whose daemon dies once at ``point``, after ``arm``."""
    node = make_node(**settings)
    node.supervised = True
    node.faults = ["crash_at_point", "data_by_python"]
    node.environment = {POINT: point, ARMED: str(node.directory / "armed")}
    return node.start()


def arm(node: Node) -> None:
    (node.directory / "armed").touch()


def died_once(node: Node) -> bool:
    return not (node.directory / "armed").exists() and node.answers() and len(node.events("taken-over")) == 1


# --- a zone that sends nothing ---------------------------------------------------------------------------------------


def prepared(node: Node) -> Path:
    """A directory with files ``a`` and ``b``, a directory ``d`` and an empty one ``e``."""
    directory = node.work / "here"
    directory.mkdir()
    (directory / "a").write_bytes(b"a")
    (directory / "b").write_bytes(b"b")
    (directory / "d").mkdir()
    (directory / "d/inside").write_bytes(b"inside")
    (directory / "e").mkdir()
    os.setxattr(directory / "b", _XATTR, b"old")
    return directory


def create(at: Path) -> None:
    fd = os.open(at / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
    try:
        assert os.write(fd, b"written") == 7
        assert os.fstat(fd).st_mode == stat.S_IFREG | 0o640
    finally:
        os.close(fd)
    assert (at / "new").read_bytes() == b"written"


def mkdir(at: Path) -> None:
    os.mkdir(at / "new", 0o750)
    assert (at / "new").stat().st_mode == stat.S_IFDIR | 0o750


def mknod(at: Path) -> None:
    os.mkfifo(at / "new", 0o600)
    assert stat.S_ISFIFO((at / "new").stat().st_mode)


def symlink(at: Path) -> None:
    os.symlink("target", at / "new")
    assert os.readlink(at / "new") == "target"


def link(at: Path) -> None:
    os.link(at / "a", at / "new")
    assert (at / "new").stat().st_nlink == 2
    assert (at / "new").samefile(at / "a")


def unlink(at: Path) -> None:
    os.unlink(at / "a")
    assert not (at / "a").exists()


def unlink_open(at: Path) -> None:
    with (at / "a").open("r+b", buffering=0) as file:
        os.unlink(at / "a")
        assert os.fstat(file.fileno()).st_nlink == 0
        file.write(b"still")
        file.seek(0)
        assert file.read() == b"still"
    assert not (at / "a").exists()


def rmdir(at: Path) -> None:
    os.rmdir(at / "e")
    assert not (at / "e").exists()


def rename(at: Path) -> None:
    inode = (at / "a").stat().st_ino
    os.rename(at / "a", at / "new")
    assert not (at / "a").exists()
    assert ((at / "new").stat().st_ino, (at / "new").read_bytes()) == (inode, b"a")


def rename_over(at: Path) -> None:
    with (at / "b").open("rb", buffering=0) as old:
        os.rename(at / "a", at / "b")
        assert old.read() == b"b"
    assert (at / "b").read_bytes() == b"a"
    assert not (at / "a").exists()


def rename_directory(at: Path) -> None:
    os.rename(at / "d", at / "e")
    assert (at / "e/inside").read_bytes() == b"inside"
    assert not (at / "d").exists()


def _rename(at: Path, flags: int) -> None:
    fd = os.open(at, os.O_RDONLY)
    try:
        rename_with_flags(fd, b"a", fd, b"new" if flags == RENAME_NOREPLACE else b"b", flags)
    finally:
        os.close(fd)


def rename_no_replace(at: Path) -> None:
    _rename(at, RENAME_NOREPLACE)
    assert (at / "new").read_bytes() == b"a"


def rename_exchange(at: Path) -> None:
    _rename(at, RENAME_EXCHANGE)
    assert ((at / "a").read_bytes(), (at / "b").read_bytes()) == (b"b", b"a")


def chmod(at: Path) -> None:
    os.chmod(at / "a", 0o600)
    assert (at / "a").stat().st_mode == stat.S_IFREG | 0o600


def truncate(at: Path) -> None:
    os.truncate(at / "a", 1000)
    assert (at / "a").read_bytes() == b"a" + bytes(999)


def open_truncated(at: Path) -> None:
    with (at / "a").open("wb", buffering=0) as file:
        file.write(b"anew")
    assert (at / "a").read_bytes() == b"anew"


def append(at: Path) -> None:
    with (at / "a").open("ab", buffering=0) as file:
        assert file.write(b"ppended") == 7
    assert (at / "a").read_bytes() == b"appended"


def fallocate(at: Path) -> None:
    with (at / "a").open("r+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 8192)
    assert (at / "a").stat().st_size == 8192


def sync(at: Path) -> None:
    with (at / "a").open("r+b", buffering=0) as file:
        file.write(b"A")
        os.fsync(file.fileno())
    assert (at / "a").read_bytes() == b"A"


def xattr_create(at: Path) -> None:
    os.setxattr(at / "a", _XATTR, b"value", os.XATTR_CREATE)
    assert os.getxattr(at / "a", _XATTR) == b"value"
    with pytest.raises(FileExistsError):
        os.setxattr(at / "a", _XATTR, b"other", os.XATTR_CREATE)


def xattr_replace(at: Path) -> None:
    os.setxattr(at / "b", _XATTR, b"value", os.XATTR_REPLACE)
    assert os.getxattr(at / "b", _XATTR) == b"value"


def xattr_remove(at: Path) -> None:
    os.removexattr(at / "b", _XATTR)
    assert os.listxattr(at / "b") == []


def listing(at: Path) -> None:
    assert sorted(os.listdir(at)) == ["a", "b", "d", "e"]


LOCAL: list[tuple[str, Callable[[Path], None]]] = [
    ("create", create),
    ("mkdir", mkdir),
    ("mknod", mknod),
    ("symlink", symlink),
    ("link", link),
    ("unlink", unlink),
    ("unlink", unlink_open),
    ("rmdir", rmdir),
    ("rename", rename),
    ("rename", rename_over),
    ("rename", rename_directory),
    ("rename", rename_no_replace),
    ("rename", rename_exchange),
    ("setattr", chmod),
    ("setattr", truncate),
    ("open", open_truncated),
    ("release", rename_over),
    ("setxattr", fallocate),
    ("fsync", sync),
    ("setxattr", xattr_create),
    ("setxattr", xattr_replace),
    ("removexattr", xattr_remove),
    ("opendir", listing),
    ("getattr", append),
]


def _name(value: object) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.promise("takeover")
@pytest.mark.parametrize(("handler", "action"), LOCAL, ids=_name)
def test_a_request_is_carried_out_once(handler: str, action: Callable[[Path], None], make_node: NodeFactory) -> None:
    node = dying(make_node, f"reply: {handler}")
    directory = prepared(node)
    arm(node)
    action(directory)
    wait_until(lambda: died_once(node))
    assert_in_order(node)
    node.stop()


@pytest.mark.promise("local-listings")
@pytest.mark.parametrize(("handler", "listed"), [("readdirplus", 0), ("readdirplus", 1000), ("readdir", 1000)])
def test_a_listing_goes_on_where_it_was(handler: str, listed: int, make_node: NodeFactory) -> None:
    """The kernel asks for names with their attributes at first, and as long as those are used."""
    node = dying(make_node, f"reply at once: {handler}")
    directory = node.work / "here"
    directory.mkdir()
    expected = {f"name-{number}" for number in range(4000)}
    for name in expected:
        (directory / name).touch()
    found: list[str] = []
    with os.scandir(directory) as entries:
        if listed == 0:
            arm(node)
        for entry in entries:
            found.append(entry.name)
            if handler == "readdirplus":
                assert entry.stat().st_ino == entry.inode()
            if len(found) == listed:
                arm(node)
    wait_until(lambda: died_once(node))
    assert sorted(found) == sorted(expected)
    assert_in_order(node)
    node.stop()


@pytest.mark.parametrize(("handler", "action"), [("write", append), ("read", append)], ids=_name)
def test_data_through_the_daemon_is_written_once(
    handler: str, action: Callable[[Path], None], make_node: NodeFactory
) -> None:
    node = dying(make_node, f"reply: {handler}", mount__passthrough=False)
    directory = prepared(node)
    arm(node)
    action(directory)
    wait_until(lambda: died_once(node))
    assert_in_order(node)
    node.stop()


# --- a zone that sends -----------------------------------------------------------------------------------------------


def send(at: Path) -> None:
    (at / "new").write_bytes(b"new")


def send_exclusively(at: Path) -> None:
    with (at / "new").open("xb") as file:
        file.write(b"new")


def publish(at: Path) -> None:
    """As Spark commits a batch: a name that may be created once, by a rename."""
    (at / "commits").mkdir(exist_ok=True)
    temporary = at / "commits/.7.d6f7.tmp"
    temporary.write_bytes(b"v1")
    os.rename(temporary, at / "commits/7")


def publish_link(at: Path) -> None:
    os.link(at / "old", at / "new")


def take_back(at: Path) -> None:
    os.unlink(at / "old")


def take_back_unread(at: Path) -> None:
    os.unlink(at / "remote")


def withdraw(at: Path) -> None:
    os.rename(at / "old", at / ".old.tmp")
    assert (at / ".old.tmp").read_bytes() == b"old"


def fetch(at: Path) -> None:
    assert (at / "remote").read_bytes() == b"remote"


SENDING: list[tuple[str, Callable[[Path], None], dict[str, bytes]]] = [
    ("reply: create", send, {"new": b"new"}),
    ("reply: flush", send, {"new": b"new"}),
    ("reply: release", send, {"new": b"new"}),
    ("send: before the request", send, {"new": b"new"}),
    ("send: stored, not recorded", send, {"new": b"new"}),
    ("send: stored, not recorded", send_exclusively, {"new": b"new"}),
    ("send: recorded, not answered", send_exclusively, {"new": b"new"}),
    ("send: stored, not recorded", publish, {"commits/7": b"v1"}),
    ("rename: stored, not renamed", publish, {"commits/7": b"v1"}),
    ("rename: renamed, entry not moved", publish, {"commits/7": b"v1"}),
    ("reply: rename", publish, {"commits/7": b"v1"}),
    ("send: stored, not recorded", publish_link, {"new": b"old"}),
    ("reply: link", publish_link, {"new": b"old"}),
    ("unlink: deletion noted, file there", take_back, {"old": b""}),
    ("unlink: file gone, nodes not told", take_back, {"old": b""}),
    ("reply: unlink", take_back, {"old": b""}),
    ("rename: stored, not renamed", take_back_unread, {"remote": b""}),
    ("unlink: deletion noted, file there", take_back_unread, {"remote": b""}),
    ("reply: unlink", take_back_unread, {"remote": b""}),
    ("rename: renamed, entry not moved", withdraw, {"old": b""}),
    ("reply: rename", withdraw, {"old": b""}),
    ("fetch: before the file is placed", fetch, {}),
    ("fetch: placed, no entry", fetch, {}),
    ("fetch: placed, entry written", fetch, {}),
    ("reply: open", fetch, {}),
]


@pytest.mark.promise("takeover")
@pytest.mark.parametrize(("point", "action", "changes"), SENDING, ids=_name)
def test_an_object_is_stored_once(
    point: str,
    action: Callable[[Path], None],
    changes: dict[str, bytes],
    make_node: NodeFactory,
    remote_files: Path,
) -> None:
    remote_files.mkdir(parents=True)
    (remote_files / "remote").write_bytes(b"remote")
    node = dying(make_node, point)
    (node.checkpoints / "old").write_bytes(b"old")
    arm(node)
    action(node.checkpoints)
    wait_until(lambda: died_once(node))
    expected = {"remote": b"remote", "old": b"old", **changes}
    kept = {name: data for name, data in expected.items() if data}
    wait_until(lambda: objects(remote_files) == kept)
    assert {name: (node.checkpoints / name).read_bytes() for name in kept} == kept
    assert node.status().unsent == []
    assert_in_order(node)
    node.stop()


RMDIR = [
    "unlink: before the store is told",
    "unlink: the store was told",
    *[point for point in POINTS if point.startswith("rmdir: ")],
    "reply: rmdir",
]


@pytest.mark.promise("rmdir")
@pytest.mark.parametrize("point", RMDIR)
def test_a_directory_is_removed_once_and_seen_when_others_make_it_anew(
    point: str, make_node: NodeFactory, remote_files: Path
) -> None:
    """It holds something foreign in the store, so that it does not go there, and has to be hidden."""
    node = dying(make_node, point, remote__delete_delay_seconds=3600, remote__metadata_ttl_seconds=0)
    job = node.checkpoints / "job"
    job.mkdir()
    (job / "state").write_bytes(b"old")
    (remote_files / "job/foreign").symlink_to("elsewhere")
    (job / "state").unlink()
    arm(node)
    job.rmdir()
    wait_until(lambda: died_once(node))
    assert objects(remote_files) == {}
    assert not job.exists()
    assert os.listdir(node.checkpoints) == []
    (remote_files / "job/state").write_bytes(b"new")
    assert (job / "state").read_bytes() == b"new"
    assert_in_order(node)
    node.stop()


@pytest.mark.promise("rmdir")
@pytest.mark.parametrize("point", RMDIR[:3])
def test_a_directory_that_a_crash_leaves_half_removed_is_seen_when_others_make_it_anew(
    point: str, make_node: NodeFactory, remote_files: Path
) -> None:
    node = dying(make_node, point, remote__delete_delay_seconds=3600)
    job = node.checkpoints / "job"
    job.mkdir()
    (job / "state").write_bytes(b"old")
    (job / "state").unlink()
    arm(node)
    job.rmdir()
    wait_until(lambda: died_once(node))
    assert os.listdir(node.checkpoints) == []
    assert not (remote_files / "job").exists()
    (remote_files / "job").mkdir()
    (remote_files / "job/state").write_bytes(b"new")
    assert (job / "state").read_bytes() == b"new"
    assert_in_order(node)
    node.stop()


def test_a_large_file_that_is_read_while_it_arrives(make_node: NodeFactory, remote_files: Path) -> None:
    data = os.urandom(24 * 2**20)
    remote_files.mkdir(parents=True)
    (remote_files / "large").write_bytes(data)
    node = dying(make_node, "fetch: before the file is placed", remote__read_while_arriving_bytes=2**20)
    arm(node)
    assert (node.checkpoints / "large").read_bytes() == data
    wait_until(lambda: died_once(node))
    assert (node.checkpoints / "large").read_bytes() == data
    assert_in_order(node)
    node.stop()
