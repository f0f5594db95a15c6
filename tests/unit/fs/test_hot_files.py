"""Calls on files whose lock a user holds: what is busy then, and for whom."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from holdfast.errors import FileBusyError
from holdfast.fs.inodes.hot_files import PATIENCE_SECONDS, HotFiles
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.store import Answer, Tree
from holdfast.store.held_directories import HeldDirectories
from holdfast.store.outside_process import RESULT
from holdfast.system.file_id import file_stat
from tests.support.users.privileges import needs_root

pytestmark = needs_root
_ALICE, _MALLORY = 1001, 1002


class _Calls:
    """The other process, in which a call ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[socket.socket] = []
        self.answers: list[Answer] = []
        self.ends_at_once = False

    def begin(self, call: str, descriptors: Sequence[int], *arguments: int | bytes) -> Answer:
        """Begin a call."""
        del call, descriptors, arguments
        here, there = socket.socketpair()
        self.begun.append(there)
        if self.ends_at_once:
            self.end(-1)
        self.answers.append(Answer(here))
        return self.answers[-1]

    def end(self, number: int) -> None:
        """Let a call succeed."""
        self.begun[number].send(RESULT.pack(0, 0))

    def close(self) -> None:
        """Close all channels."""
        for channel in self.begun:
            channel.close()
        for answer in self.answers:
            answer.close()


class _Writes:
    """Writes in threads of the daemon, by the descriptors of their files."""

    def __init__(self) -> None:
        self.under_way: set[int] = set()
        self.held_back: set[int] = set()

    def is_written(self, fd: int) -> bool:
        """Say whether there is one."""
        return fd in self.under_way

    def hold_back(self, fd: int) -> bool:
        """Begin no further one; say whether there is one."""
        self.held_back.add(fd)
        return fd in self.under_way

    def let_go(self, fd: int) -> None:
        """Begin further ones."""
        self.held_back.discard(fd)


class _Files:
    """Hot files of users, each in the directory ``d``."""

    def __init__(self, path: Path) -> None:
        self.calls = _Calls()
        self.directory = path / "d"
        self.directory.mkdir()
        self.notes_fd = os.open(path / "held", os.O_RDWR | os.O_CREAT)
        self.tree = Tree(os.open(path, os.O_RDONLY), HeldDirectories(self.notes_fd))
        self.directory_fd = os.open(self.directory, os.O_RDONLY)
        self._nodes: dict[int, Any] = {}
        self.let_go: list[int] = []
        orphanage = SimpleNamespace(release=self.let_go.append)
        store = SimpleNamespace(calls=self.calls, tree=self.tree, orphanage=orphanage, quarantine=None)
        nodes = SimpleNamespace(of_backing=self._nodes.get)
        self.writes = _Writes()
        descriptors = cast(Any, SimpleNamespace(forget=lambda _: None))
        self.hot = HotFiles(cast(Any, store), cast(Any, nodes), descriptors, self.note, cast(Any, self.writes))
        self.opened: list[OpenFile] = []
        self.told: list[tuple[int, bytes]] = []

    def open(self, name: str, *users: int) -> OpenFile:
        """Open a file that has another name too, in passthrough for ``users`` one after the other."""
        path = self.directory / name
        path.touch()
        os.link(path, path.with_name(f"{name} too"))
        if users and users[0]:
            os.chown(self.directory, users[0], -1)
        fd = os.open(path, os.O_RDWR)
        opened = OpenFile(cast(Any, None), fd, file_stat(fd), writable=True)
        for number, uid in enumerate(users):
            if uid:
                opened.passed_through_for(uid, is_first=number == 0)
        self._nodes[opened.inode] = SimpleNamespace(id=opened.inode, opened=opened, is_named=False)
        self.opened.append(opened)
        return opened

    def close(self, opened: OpenFile) -> None:
        """Let the last handle of a file be closed."""
        self._nodes[opened.inode].opened = None

    def know(self, inode: int) -> None:
        """Let a directory have a node."""
        self._nodes[inode] = SimpleNamespace(id=inode, opened=None)

    def note(self, directory: int, name: bytes) -> None:
        """The kernel is to ask again for a name."""
        self.told.append((directory, name))

    def unlink(self, opened: OpenFile, then: Callable[[], None] | None = None) -> None:
        """Remove a name of a file that has settled."""
        self.hot.unlink(opened, self.directory_fd, b"name", then)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[_Files]:
    made = _Files(tmp_path)
    yield made
    made.calls.close()
    for fd in (made.notes_fd, made.tree.root_fd, made.directory_fd, *(each.fd for each in made.opened)):
        os.close(fd)


async def test_a_directory_is_held_until_the_call_that_has_its_lock_has_ended(files: _Files) -> None:
    """Another call on the file that is late too says nothing about the first."""
    opened = files.open("file", _MALLORY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.hot.settle, opened.inode)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(FileBusyError):
            files.unlink(opened)
        nursery.cancel_scope.cancel()
    with pytest.raises(FileBusyError):
        files.tree.stat(b"d/file")
    files.calls.end(0)
    with pytest.raises(FileBusyError):
        files.tree.stat(b"d/file")
    files.calls.end(1)
    assert files.tree.stat(b"d/file").st_ino == opened.inode


@pytest.mark.parametrize(("number", "is_asked"), [(0, False), (0, True), (errno.ENOENT, False)])
async def test_what_succeeds_after_its_user_was_told_that_the_file_is_busy_is_recorded(
    files: _Files, number: int, is_asked: bool
) -> None:
    opened, done = files.open("file", _MALLORY), []
    inode = os.fstat(files.directory_fd).st_ino
    files.know(inode)
    with pytest.raises(FileBusyError):
        files.unlink(opened, lambda: done.append("recorded"))
    await trio.testing.wait_all_tasks_blocked()
    assert (done, files.told) == ([], [])
    files.calls.begun[0].send(RESULT.pack(number, 0))
    if is_asked:
        with pytest.raises(FileBusyError):
            files.unlink(opened)
    else:
        with trio.fail_after(10):
            while not files.told:
                await trio.lowlevel.checkpoint()
    assert done == ["recorded"] * (number == 0)
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["recorded"] * (number == 0)
    assert files.told == [(inode, b"name")]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_file_that_loses_its_last_name_late_is_kept_for_as_long_as_it_is_open(
    files: _Files, is_closed: bool
) -> None:
    opened, done = files.open("file", _MALLORY), []
    with pytest.raises(FileBusyError):
        files.unlink(opened, lambda: done.append("recorded"))
    if is_closed:
        files.close(opened)
    assert files.let_go == []
    files.calls.end(0)
    with trio.fail_after(10):
        while not done:
            await trio.lowlevel.checkpoint()
    assert files.let_go == [opened.inode] * is_closed


def test_the_next_daemon_knows_what_is_held_and_walks_around_it(files: _Files) -> None:
    (files.directory / "below").mkdir()
    opened = files.open("file", _MALLORY)
    with pytest.raises(FileBusyError):
        files.unlink(opened)
    again = Tree(files.tree.root_fd, HeldDirectories(files.notes_fd))
    again.held.restore(lambda directory: files.calls.begin("probe_directory", [], directory.path or b""))
    with pytest.raises(FileBusyError):
        again.open_directory(b"d/below")
    assert {path for path, _ in again.walk(b"", directories=True)} == {b"d", b"held"}
    assert again.held.has(file_stat(os.fspath(files.directory)).st_ino)
    files.calls.end(-1)
    os.close(again.open_directory(b"d/below"))
    assert b"d/file" in dict(again.walk(b""))
    later = HeldDirectories(files.notes_fd)
    later.restore(lambda directory: files.calls.begin("probe_directory", [], directory.path or b""))
    assert not later.calls


def test_what_may_be_held_is_written_down_before_the_call_begins(files: _Files, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = files.open("file", _MALLORY)
    files.calls.ends_at_once = True
    begin, noted = files.calls.begin, []

    def look(call: str, descriptors: Sequence[int], *arguments: int | bytes) -> Answer:
        noted.append(os.pread(files.notes_fd, 100, 0))
        return begin(call, descriptors, *arguments)

    monkeypatch.setattr(files.calls, "begin", look)
    files.unlink(opened)
    assert noted[0].startswith(b"%d/d\0" % os.stat(files.directory).st_ino)
    assert os.pread(files.notes_fd, 2, 0) == b"\0\0"


def test_what_is_held_is_busy_for_who_expects_errors_of_the_disk_too(files: _Files) -> None:
    with pytest.raises(FileBusyError):
        files.unlink(files.open("file", _MALLORY))
    with pytest.raises(OSError) as told:  # noqa: PT011 its errno is looked at
        files.tree.stat(b"d/file")
    assert told.value.errno == errno.EBUSY


def test_the_event_loop_waits_once_for_a_user(files: _Files) -> None:
    first, second = files.open("first", _MALLORY), files.open("second", _MALLORY)
    with pytest.raises(FileBusyError):
        files.unlink(first)
    with pytest.raises(FileBusyError):
        files.hot.chmod(second, 0o600)
    assert len(files.calls.begun) == 1, "the second call is not begun"
    files.calls.ends_at_once = True
    files.hot.chmod(files.open("Alice's", _ALICE), 0o600)
    files.calls.end(0)
    files.hot.chmod(second, 0o600)


@pytest.mark.promise("local-busy")
async def test_a_change_of_attributes_waits_for_a_call_that_a_busy_machine_makes_slow(files: _Files) -> None:
    opened = files.open("file", _MALLORY)
    files.calls.ends_at_once = True  # the look whether the lock is free

    def change() -> str:
        files.calls.ends_at_once = len(files.calls.begun) == 2
        files.hot.chmod(opened, 0o600)
        return "changed"

    async def made() -> None:
        assert await files.hot.change(opened.inode, change) == "changed"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made)
        await trio.testing.wait_all_tasks_blocked()
        assert len(files.calls.begun) == 2
        files.calls.end(1)
    assert len(files.calls.begun) == 3


async def test_what_a_thread_of_the_daemon_writes_to_is_changed_when_it_has_ended(files: _Files) -> None:
    """Until then it has the lock of the file, on a slow disk for long, and the event loop would wait for that."""
    opened = files.open("file")
    files.writes.under_way.add(opened.fd)
    seen: list[tuple[set[int], set[int]]] = []

    async def change() -> None:
        await files.hot.change(opened.inode, lambda: seen.append((set(files.writes.under_way), set(files.writes.held_back))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        while opened.fd not in files.writes.held_back:
            await trio.lowlevel.checkpoint()
        assert not seen
        files.writes.under_way.clear()
    assert seen == [(set(), {opened.fd})], "no other write begins before the change is made"
    while files.writes.held_back:  # let go as soon as the event loop comes to it
        await trio.lowlevel.checkpoint()
    assert not files.calls.begun


async def test_a_file_is_busy_if_a_write_to_it_does_not_end(files: _Files, autojump_clock: trio.testing.MockClock) -> None:
    opened = files.open("file")
    files.writes.under_way.add(opened.fd)
    began = trio.current_time()
    with pytest.raises(FileBusyError, match="the disk takes long"):
        await files.hot.settle(opened.inode)
    assert trio.current_time() - began == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    while files.writes.held_back:  # let go as soon as the event loop comes to it
        await trio.lowlevel.checkpoint()


@pytest.mark.promise("local-busy")
async def test_a_change_of_attributes_waits_no_longer_for_a_lock_that_is_held(
    files: _Files, autojump_clock: trio.testing.MockClock
) -> None:
    opened = files.open("file", _MALLORY)
    files.calls.ends_at_once = True

    def change() -> None:
        files.calls.ends_at_once = False
        files.hot.chmod(opened, 0o600)

    with pytest.raises(FileBusyError):
        await files.hot.change(opened.inode, change)
    assert PATIENCE_SECONDS <= autojump_clock.current_time() < 2 * PATIENCE_SECONDS


async def test_slow_calls_on_what_the_daemon_serves_count_for_who_has_opened_it(files: _Files) -> None:
    """Truncations take long, with nobody to hold them up, and no other user is refused for that."""
    charged = [files.open(f"file {number}") for number in range(12)]
    for opened in charged:
        opened.charged_to(_MALLORY)

    async def truncate(opened: OpenFile) -> None:
        await files.hot.call(opened, "truncate", [], 0)

    async with trio.open_nursery() as nursery:
        for opened in charged[:8]:
            nursery.start_soon(truncate, opened)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(FileBusyError):
        await truncate(charged[8])
    files.calls.ends_at_once = True
    await truncate(files.open("nobody's"))
    alices = files.open("Alice's")
    alices.charged_to(_ALICE)
    await truncate(alices)


@pytest.mark.promise("local-busy")
@pytest.mark.parametrize("first", [0, _ALICE])
def test_a_file_that_a_stranger_has_open_keeps_its_names(files: _Files, first: int) -> None:
    """The stranger could hold the owner's directory."""
    opened = files.open("file", first, _MALLORY)
    changes: list[Callable[[], None]] = [
        lambda: files.unlink(opened),
        lambda: files.hot.rename([opened], files.directory_fd, b"file", files.directory_fd, b"new", then=files.calls.close),
        lambda: files.hot.link(opened, files.directory_fd, b"file", files.directory_fd, b"new", then=files.calls.close),
        lambda: files.hot.rename_out(
            opened.inode, files.directory_fd, b"file", files.directory_fd, b"new", files.calls.close
        ),
    ]
    for change in changes:
        with pytest.raises(FileBusyError, match="several users"):
            change()
    assert not files.calls.begun
