"""Whoever reads or writes a file in passthrough can hold its inode's lock: then that file alone is busy."""

from __future__ import annotations

import errno
import json
import mmap
import os
import select
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.fs.inodes.hot_files import PATIENCE_SECONDS
from tests.conftest import NodeFactory
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.node import Node, wait_until
from tests.support.users.attackers import until_end
from tests.support.users.held_locks import arriving, held_up, read_directly
from tests.support.users.privileges import ALICE, MALLORY, User
from tests.support.users.stalls import bystander

_PIECES = 1500


def _allocate(file: Path) -> None:
    fd = os.open(file, os.O_WRONLY)
    try:
        os.posix_fallocate(fd, 0, 1 << 20)
    finally:
        os.close(fd)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "chmod": lambda file: file.chmod(0o604),
    "utime": lambda file: os.utime(file, (1, 1)),
    "setxattr": lambda file: os.setxattr(file, "user.a", b"b"),
    "link": lambda file: os.link(file, file.with_name("linked")),
    "rename over another": lambda file: file.rename(file.with_name("other")),
    "rename back over another": lambda file: file.with_name("other").rename(file),
    "rename elsewhere": lambda file: file.rename(file.parent / "below/renamed"),
    "rename over it from elsewhere": lambda file: (file.parent / "below/other").rename(file),
    "allocate": _allocate,
    "truncate": lambda file: os.truncate(file, 5),
    "open and truncate": lambda file: os.close(os.open(file, os.O_WRONLY | os.O_TRUNC)),
    "unlink": os.unlink,
}
"""What may wait for the lock of a file. Some of it follows what went before."""


@pytest.fixture
def own(workspace: Path) -> Path:
    """A directory for Mallory's file system."""
    path = workspace / "own"
    path.mkdir()
    return path


def _made(home: Path, user: User = MALLORY) -> Path:
    """A file in a directory of its own, both the user's, with others beside it and below."""

    def make() -> None:
        (home / "below").mkdir(parents=True)
        for name in ("file", "other", "below/other"):
            (home / name).write_bytes(b"x" * 65_536)

    user.do(make)
    return home / "file"


def _outcome(change: Callable[[Path], object], file: Path) -> int:
    """Change a file; return 0, or the error."""
    try:
        change(file)
    except OSError as problem:
        return problem.errno or 0
    return 0


def _check(change: Callable[[Path], object], file: Path, expected: int = errno.EBUSY, user: User = MALLORY) -> None:
    """Let a user change a file, and fail unless that ends as expected."""

    def check() -> None:
        assert _outcome(change, file) == expected

    user.do(check)


def _wait_for(change: Callable[[Path], object], file: Path, expected: int = 0) -> None:
    """Let Mallory change a file as soon as it is not busy any more, or until that ends as expected."""
    MALLORY.do(lambda: wait_until(lambda: _outcome(change, file) == expected))


@pytest.mark.promise("local-busy")
def test_a_file_whose_lock_is_held_is_busy_and_nothing_else_is(make_node: NodeFactory, own: Path) -> None:
    """Gain: every request on the node waits for as long as Mallory likes, and the daemon can't be killed."""
    node = make_node()
    node.faults = ["short_patience"]
    node.start()
    files = {change: _made(node.work / f"mallory {number}") for number, change in enumerate(_CHANGES)}
    held = [partial(read_directly, file) for file in files.values()]
    with bystander(node) as waits, held_up(MALLORY, held, own), ThreadPoolExecutor() as threads:
        tried = [threads.submit(_check, change, files[name]) for name, change in _CHANGES.items()]
        for each in tried:
            each.result()
        _check(Path.touch, files["chmod"].with_name("new"), 0)

        def check_all() -> None:
            began = time.monotonic()
            assert {name: _outcome(change, files[name]) for name, change in _CHANGES.items()} == dict.fromkeys(
                _CHANGES, errno.EBUSY
            )
            assert time.monotonic() - began < PATIENCE_SECONDS, "what is known to be held is not waited for again"

        MALLORY.do(check_all)
    waits.check()


def test_an_open_file_is_changed_when_its_lock_is_free(node: Node, own: Path) -> None:
    file = _made(node.work / "mallory")

    def change_all() -> None:
        for name, change in _CHANGES.items():
            if not file.exists():
                file.write_bytes(b"x" * 65_536)
            with open(file):
                change(file)
            assert file.exists() == (name not in ("rename over another", "rename elsewhere", "unlink"))

    MALLORY.do(change_all)
    again = _made(node.work / "mallory again")
    with held_up(MALLORY, [partial(read_directly, again)], own):
        _check(os.unlink, again)
    _wait_for(os.unlink, again)
    assert not again.exists()


def test_an_object_that_still_arrives_is_memory_that_holds_up_nobody_else(
    make_node: NodeFactory, remote_files: Path
) -> None:
    """Gain: the daemon waits for a lock that is free only once it has answered a read, for as long as the store is slow."""
    remote_files.mkdir(parents=True)
    (remote_files / "large").write_bytes(os.urandom(1 << 20) * 12)
    slow = {"remote__read_while_arriving_bytes": 1 << 20, "checkpoints__download_bytes_per_second": 500_000}
    node = make_node(**slow).start()
    changes = {name: change for name, change in _CHANGES.items() if name in ("chmod", "utime", "truncate", "unlink")}
    files = {name: _made(node.work / f"mallory {number}") for number, name in enumerate(changes)}
    held = [partial(read_directly, file) for file in files.values()]
    with bystander(node) as waits, arriving(MALLORY, node.checkpoints / "large", held), ThreadPoolExecutor() as threads:
        for each in [threads.submit(_wait_for, _CHANGES["chmod"], file, errno.EBUSY) for file in files.values()]:
            each.result()
        for each in [threads.submit(_check, change, files[name]) for name, change in changes.items()]:
            each.result()
    waits.check()
    _wait_for(Path.touch, files["unlink"].with_name("new"))


@pytest.mark.promise("local-busy")
@pytest.mark.parametrize("name", ["unlink", "rename elsewhere"])
def test_who_takes_the_lock_again_at_once_holds_up_a_directory_of_its_own(
    make_node: NodeFactory, own: Path, name: str
) -> None:
    """Gain: as above, by being asked first whether the lock is free, and taking it then; and again with many files."""
    node = make_node()
    node.faults = ["no_settling"]
    node.start()
    file, other = _made(node.work / "mallory"), _made(node.work / "mallory too")
    MALLORY.do(lambda: os.link(file, file.with_name("linked")))
    held = [partial(read_directly, file), partial(read_directly, other)]
    with bystander(node) as waits, held_up(MALLORY, held, own):
        _check(_CHANGES[name], file)
        _check(Path.touch, file.with_name("new"))
        _check(lambda below: below.rename(below.with_name("up")), file.parent / "below")
        _check(lambda whole: whole.rename(node.work / "moved"), file.parent)
        _check(_CHANGES[name], other)
        _check(Path.touch, other.with_name("new"), 0)
        _check(_CHANGES["rename elsewhere"], _made(node.work / "mallory again"), 0)
    waits.check()
    _wait_for(Path.touch, file.with_name("new"))
    wait_until(lambda: not file.exists())  # the call went on when the lock was free, and the kernel has been told since
    left = file.parent / ("linked" if name == "unlink" else "below/renamed")
    MALLORY.do(lambda: os.link(left, file))  # by the name that the daemon has it under
    assert file.samefile(left)
    assert file.stat().st_nlink == (2 if name == "unlink" else 3)
    assert_in_order(node)


@pytest.mark.parametrize("names", [1, 2])
def test_a_daemon_ends_while_a_lock_is_held(make_node: NodeFactory, own: Path, names: int) -> None:
    """Gain: a daemon that waits in the kernel does not end when it is killed, and no other can start, or it waits there too.

    The call with which a file loses one of several names has the lock of the directory.
    """
    node = make_node()
    node.faults, node.supervised = ["no_settling"], True
    node.start()
    file = _made(node.work / "mallory")
    if names > 1:
        MALLORY.do(lambda: os.link(file, file.with_name("linked")))
    with bystander(node), held_up(MALLORY, [partial(read_directly, file)], own):
        _check(os.unlink, file)
        node.kill_daemon()
        _check(Path.touch, file.with_name("new"), 0 if names == 1 else errno.EBUSY)
        MALLORY.do((node.work / "mallory elsewhere").mkdir)
    _wait_for(Path.touch, file.with_name("new"))
    assert file.exists() == (names == 1), "what had begun went on"


def test_whoever_does_not_own_the_directory_holds_no_lock(node: Node, own: Path) -> None:
    """Gain: who may only read an object keeps its owner from removing it."""
    file = _made(node.work / "alice", ALICE)

    def change_all() -> None:
        for change in _CHANGES.values():
            if not file.exists():
                file.write_bytes(b"x")
            change(file)

    with bystander(node) as waits, held_up(MALLORY, [partial(read_directly, file)], own):
        ALICE.do(change_all)
    waits.check()


@pytest.mark.parametrize("name", ["unlink", "truncate", "open and truncate", "rename back over another"])
def test_a_file_in_many_pieces_is_freed_while_others_work(node: Node, name: str) -> None:
    """Gain: the daemon frees pieces for as long as Mallory has made them, and nobody else is answered."""
    file = _made(node.work / "mallory")

    def scatter() -> None:
        with open(file, "r+b") as written:
            for number in range(_PIECES):
                os.pwrite(written.fileno(), b"x" * 4096, number * 8192)
            os.fsync(written.fileno())

    MALLORY.do(scatter)
    with bystander(node) as waits:
        MALLORY.do(lambda: _CHANGES[name](file))
    waits.check()


def _sent(node: Node, user: User = MALLORY) -> Path:
    """An object in a store's directory, both the user's."""
    directory = node.checkpoints / "job"
    directory.mkdir(exist_ok=True)
    os.chown(directory, user.uid, user.gid)

    def make() -> None:
        (directory / "file").write_bytes(b"x" * 65_536)

    user.do(make)
    return directory / "file"


def _flush_deletions(file: Path) -> None:
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@pytest.mark.promise("unlink-busy")
def test_the_object_of_a_name_that_could_not_be_removed_stays(node: Node, remote_files: Path) -> None:
    """Gain: an unlink that is refused with EBUSY deletes the object from the store all the same."""
    file = _sent(node, ALICE)

    def keep_open(told: int, end: int) -> None:
        with open(file, "rb"):
            os.write(told, b"1")
            select.select([end], [], [])

    with until_end(ALICE, keep_open), until_end(MALLORY, keep_open):
        for change in (os.unlink, lambda path: path.rename(path.with_name("renamed.tmp"))):
            _check(change, file, user=ALICE)
        _flush_deletions(file)
        assert (remote_files / "job/file").exists()
        assert os.listdir(file.parent) == ["file"]
    assert file.read_bytes() == b"x" * 65_536
    node.kill()
    node.start()
    assert file.read_bytes() == b"x" * 65_536
    ALICE.do(file.unlink)
    _flush_deletions(file)
    assert not (remote_files / "job/file").exists()


@pytest.mark.promise("unlink-busy")
def test_the_object_of_a_name_goes_when_the_name_goes(make_node: NodeFactory, own: Path, remote_files: Path) -> None:
    """An unlink and a rename out of the store come late: until then the file and its object are there, and then neither."""
    node = make_node()
    node.faults = ["no_settling"]
    node.start()
    stored, outside = remote_files / "job/file", _made(node.work / "mallory").with_name("outside")
    for change in (os.unlink, lambda path: path.rename(outside)):
        file = _sent(node)
        MALLORY.do(partial(os.link, file, file.with_name("too.tmp")))
        with bystander(node) as waits, held_up(MALLORY, [partial(read_directly, file)], own):
            _check(change, file)
            _flush_deletions(node.checkpoints)
            assert stored.exists()
        waits.check()
        wait_until(lambda: not stored.exists())
        assert not file.exists()
        MALLORY.do(file.with_name("too.tmp").unlink)
    node.kill()
    node.start()
    assert os.listdir(file.parent) == []
    assert outside.read_bytes() == b"x" * 65_536
    assert_in_order(node)


def test_what_goes_late_without_a_request_is_known_to_be_gone(make_node: NodeFactory, own: Path, remote_files: Path) -> None:
    """A copy whose object is another one by now, and one that is corrupt, are held up while they go."""
    node = make_node(remote__metadata_ttl_seconds=0)
    node.faults = ["no_settling"]
    node.start()
    file = _sent(node)
    other = file.with_name("other")
    MALLORY.do(lambda: other.write_bytes(b"y" * 65_536))
    copy = node.backing(other)
    with bystander(node) as waits, held_up(MALLORY, [partial(read_directly, file)], own):
        (remote_files / "job/file").unlink()
        (remote_files / "job/file").write_bytes(b"new")
        assert _outcome(Path.read_bytes, file) == errno.EBUSY
    waits.check()
    wait_until(lambda: _outcome(Path.read_bytes, file) == 0)
    assert file.read_bytes() == b"new"

    with bystander(node) as waits, held_up(MALLORY, [partial(read_directly, other)], own):
        with open(copy, "r+b") as backing, mmap.mmap(backing.fileno(), 0) as mapped:
            mapped[0] ^= 1  # which takes no lock
        with node.client() as client, suppress(HoldfastError):
            list(client.verify(str(other)))
        assert node.events("quarantined") == []
    waits.check()
    assert node.wait_event("quarantined")["why"] == "digest"
    assert other.read_bytes() == b"y" * 65_536
    (kept,) = (path for path in (node.store / "quarantine").iterdir() if path.suffix != ".json")
    assert json.loads(kept.with_name(f"{kept.name}.json").read_text())["why"] == "digest"
    assert_in_order(node)
