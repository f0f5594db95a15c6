"""A time that a user sets overwrites that of a write at the same moment: the write is found by its bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.digest import fingerprint_of_buffer
from holdfast.fs.file_io.passthrough import PassthroughWrites
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.namespace.attr_ops import AttrOps, Changes
from holdfast.index import Entry, EntryState, Index
from holdfast.store import Stamps, stamp_of
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.transfer import HashingThreads

LONG_AGO_NS = 987_654_321_987_654_321
_CLOCK_REALTIME_COARSE = 5


class Opened:
    """A file that was sent, and is open for writing in passthrough; ``are_fine``: whether its times are."""

    def __init__(self, fd: int, index: Index, *, are_fine: bool) -> None:
        self.entries = index.entries
        stat = file_stat(fd)
        self.file = OpenFile(Node(7, None, b"", FileId(7), False), fd, stat, writable=True)
        base: Any = SimpleNamespace(
            nodes=None,
            policy=SimpleNamespace(has_digest=lambda _: True),
            hashing=HashingThreads(),
            rooms=None,
            parts=SimpleNamespace(store=SimpleNamespace(stamps=Stamps(are_fine=are_fine), tree=None), index=index),
        )
        self.writes = PassthroughWrites(base)
        digest = fingerprint_of_buffer(os.pread(fd, 100, 0)).digest
        entry = Entry(EntryState.CLEAN, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest)
        self.entries.put(stat.st_ino, entry)
        self.file.count()
        self.writes.expect(self.file)

    def set_time(self, mtime_ns: int, write: bytes = b"") -> None:
        """Set the mtime as a SETATTR does, and write at the moment before it."""
        self.writes.detect_writes(self.file)
        if write:
            os.pwrite(self.file.fd, write, 0)
        os.utime(self.file.fd, ns=(0, mtime_ns))
        self.writes.time_was_set(self.file)
        self.writes.detect_writes(self.file)
        assert not self.file.unsent, "size and time tell nothing"

    @property
    def entry(self) -> Entry:
        entry = self.entries.get(file_stat(self.file.fd).st_ino)
        assert entry is not None
        return entry

    @property
    def stat(self) -> FileStat:
        return file_stat(self.file.fd)


def attributes_of(opened: Opened) -> AttrOps:
    """The attributes of nodes, of which there is but this one."""

    async def make_local(_: Node) -> None: ...

    async def change(_: FileId, change: Callable[[], FileStat]) -> FileStat:
        return change()

    base: Any = SimpleNamespace(
        directories=None,
        hot=SimpleNamespace(of=lambda _: None, change=change),
        quotas=None,
        view=None,
        parts=SimpleNamespace(store=None, index=SimpleNamespace(entries=opened.entries)),
    )
    views: Any = SimpleNamespace(revalidation=None, times=SimpleNamespace(set_here=lambda *_: None))
    files: Any = SimpleNamespace(
        files=SimpleNamespace(stat=lambda _: opened.stat),
        passthrough_writes=opened.writes,
        local_files=SimpleNamespace(make_local=make_local),
        opening=None,
        read_write=None,
        committer=None,
    )
    return AttrOps(base, views, files)


@pytest.fixture(params=[True, False], ids=["fine", "coarse"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    (tmp_path / "file").write_bytes(b"sent")
    fd = os.open(tmp_path / "file", os.O_RDWR)
    index = Index.open(tmp_path / "index", "store")
    yield Opened(fd, index, are_fine=request.param)
    index.close()
    os.close(fd)


async def test_a_write_at_the_moment_at_which_a_time_is_set_is_found(opened: Opened) -> None:
    opened.set_time(LONG_AGO_NS, b"else")
    await opened.writes.compare(opened.file)
    assert opened.file.unsent
    assert opened.entry.state is EntryState.DIRTY


@pytest.mark.parametrize("changes", [Changes(mtime_ns=LONG_AGO_NS)], ids=["mtime"])
async def test_it_is_found_whichever_time_is_set(opened: Opened, monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    """Setting one time overwrites both."""
    set_times = os.utime

    def write_before(file: int, **arguments: Any) -> None:
        os.pwrite(opened.file.fd, b"else", 0)
        set_times(file, **arguments)

    opened.file.node.opened = opened.file
    monkeypatch.setattr(os, "utime", write_before)
    await attributes_of(opened).set(opened.file.node, changes)
    await opened.writes.compare(opened.file)
    assert opened.file.unsent
    assert opened.entry.state is EntryState.DIRTY


def test_the_last_release_finds_it_too(opened: Opened) -> None:
    opened.set_time(LONG_AGO_NS, b"else")
    assert opened.writes.compare_nowait(opened.file)
    assert opened.file.unsent


async def test_a_file_of_which_only_the_time_was_set_is_as_it_was_sent(opened: Opened) -> None:
    opened.set_time(LONG_AGO_NS)
    assert opened.entry.mtime_ns != LONG_AGO_NS, "a daemon that comes now must not believe that it knows the bytes"
    await opened.writes.compare(opened.file)
    assert not opened.file.unsent
    assert not opened.file.hides_writes
    assert (opened.entry.state, opened.entry.mtime_ns) == (EntryState.OPEN, LONG_AGO_NS)
    assert opened.entry.describes(opened.stat)
    os.pwrite(opened.file.fd, b"else", 0)
    opened.writes.detect_writes(opened.file)
    assert opened.file.unsent


@pytest.mark.parametrize("opened", [False], indirect=True)
async def test_a_write_in_the_tick_that_a_user_has_set_is_found(opened: Opened) -> None:
    """The next write gives the file the time that it has: only its bytes tell."""
    set_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) + 9_000_000
    opened.set_time(set_ns)
    opened.file.mtime_was_set(set_ns)
    opened.writes.before_send(opened.file)
    assert opened.stat.st_mtime_ns == set_ns, "what a user has set stays"
    opened.entries.put(opened.stat.st_ino, opened.entry)
    os.pwrite(opened.file.fd, b"else", 0)
    os.utime(opened.file.fd, ns=(0, set_ns))
    opened.writes.detect_writes(opened.file)
    assert stamp_of(opened.stat) == opened.file.stamp
    assert opened.file.hides_writes
    await opened.writes.compare(opened.file)
    assert opened.file.unsent
