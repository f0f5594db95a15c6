"""What goes when the disk gets full: as little as possible, the longest unused first, never what is open or pinned."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.capacity import (
    Candidate,
    Disk,
    EmptiedDirectories,
    Limits,
    Room,
    Rooms,
    Usage,
    can_ever_fit,
    first_to_evict,
    to_free,
    victims,
)
from holdfast.errors import CacheFullError, FileBusyError
from holdfast.index import CachedName, Entry, EntryState, Index
from holdfast.store import DiskSpace, Space
from holdfast.system.file_id import FileId, id_on
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import CachedCopies

limits_of_any_kind = st.builds(
    Limits,
    st.just(0) | st.integers(1, 10_000),
    st.integers(0, 10_000),
    st.floats(0.01, 1.0, allow_nan=False),
    st.floats(0.0, 0.9, allow_nan=False),
)
disks = st.builds(DiskSpace, st.just(20_000), st.integers(0, 20_000), st.just(0) | st.just(1000), st.integers(0, 1000))
usages = st.builds(Usage, st.integers(0, 20_000), disks)
spaces = st.builds(Space, st.integers(0, 2000), st.integers(0, 10_000))


# --- policy -----------------------------------------------------------------------------------------------------------


def after(usage: Usage, freed: Space, written: Space) -> Usage:
    disk, change_bytes = usage.disk, freed.size_bytes - written.size_bytes
    free_files = disk.free_files + freed.files - written.files
    return Usage(
        usage.cached_bytes - change_bytes,
        disk._replace(free_bytes=disk.free_bytes + change_bytes, free_files=free_files),
    )


def keeps(limits: Limits, usage: Usage) -> bool:
    disk, reserve = usage.disk, limits.reserve(usage.disk)
    has_files = disk.files == 0 or disk.free_files >= reserve.files
    within_limit = not limits.max_bytes or usage.cached_bytes <= limits.max_bytes
    return within_limit and disk.free_bytes >= reserve.size_bytes and has_files


def used(cached_bytes: int, free_bytes: int, size_bytes: int = 0, files: int = 0, free_files: int = 0) -> Usage:
    return Usage(cached_bytes, DiskSpace(size_bytes, free_bytes, files, free_files))


NOTHING = Space(0, 0)


@given(limits_of_any_kind, usages, spaces)
def test_nothing_must_go_exactly_when_there_is_room(limits: Limits, usage: Usage, wanted: Space) -> None:
    assert (to_free(limits, usage, wanted) == NOTHING) is keeps(limits, after(usage, NOTHING, wanted))


@given(limits_of_any_kind, usages, spaces)
def test_what_must_go_is_enough_and_no_more_than_the_watermark_asks_for(limits: Limits, usage: Usage, wanted: Space) -> None:
    needed = to_free(limits, usage, wanted)
    assert keeps(limits, after(usage, needed, wanted))
    if needed.size_bytes:
        less = after(usage, needed._replace(size_bytes=needed.size_bytes - 1), wanted)
        above_watermark = bool(limits.max_bytes) and less.cached_bytes > limits.max_bytes * limits.low_watermark - 1
        assert not keeps(limits, less) or above_watermark
    if needed.files:
        assert not keeps(limits, after(usage, needed._replace(files=needed.files - 1), wanted))


def test_the_cache_shrinks_to_its_watermark_once_something_must_go() -> None:
    limits = Limits(1000, 0, 0.9)
    assert to_free(limits, used(1000, 5000), NOTHING) == NOTHING
    assert to_free(limits, used(990, 5000), Space(1, 10)) == NOTHING
    assert to_free(limits, used(990, 5000), Space(1, 11)).size_bytes == 101
    assert to_free(limits, used(1100, 5000), NOTHING).size_bytes == 200


def test_the_reserve_counts_without_a_limit() -> None:
    limits = Limits(0, 100, 0.9)
    assert to_free(limits, used(10**15, 150), Space(1, 50)) == NOTHING
    assert to_free(limits, used(10**15, 150), Space(1, 51)).size_bytes == 1
    assert to_free(limits, used(0, 20), NOTHING).size_bytes == 80


def test_the_reserve_is_a_share_of_the_disk_of_bytes_and_inodes_alike() -> None:
    limits = Limits(0, 100, 0.9, 0.05)
    assert limits.reserve(DiskSpace(1000, 0, 200, 0)) == Space(10, 100)
    assert limits.reserve(DiskSpace(10_000, 0, 200, 0)) == Space(10, 500)
    assert to_free(limits, used(0, 10**6, 10_000, 200, 9), NOTHING) == Space(1, 0)
    assert to_free(limits, used(0, 10**6, 10_000, 200, 10), Space(3, 0)) == Space(3, 0)


def test_a_disk_that_makes_inodes_as_they_are_needed_never_lacks_any() -> None:
    """btrfs says 0 of 0."""
    limits = Limits(0, 0, 0.9, 0.05)
    assert to_free(limits, used(0, 10**6, 10_000, 0, 0), Space(1000, 0)) == NOTHING


def test_what_is_about_to_be_written_is_kept_free_where_it_is_more_than_the_reserve() -> None:
    limits = Limits(0, 100, 0.9)
    assert to_free(limits, used(0, 150), NOTHING, ahead_bytes=50) == NOTHING
    assert to_free(limits, used(0, 150), NOTHING, ahead_bytes=400) == Space(0, 250)


@given(limits_of_any_kind, usages, st.integers(0, 20_000))
def test_what_can_ever_fit_fits_when_all_of_the_cache_is_gone(limits: Limits, usage: Usage, wanted: int) -> None:
    bytes_alone = usage.disk._replace(files=0)
    emptied = after(Usage(usage.cached_bytes, bytes_alone), Space(0, usage.cached_bytes), Space(0, wanted))
    assert can_ever_fit(limits, usage, wanted) is keeps(limits, emptied)


@given(st.lists(st.builds(Candidate, st.integers(1, 100), st.integers(0, 100), st.integers(0, 5))), st.integers(0, 10))
def test_the_longest_unused_goes_first(candidates: list[Candidate], most: int) -> None:
    order = first_to_evict(iter(candidates), most)
    assert {*map(id, order)} <= {*map(id, candidates)}
    assert [each.used_ns for each in order] == sorted(each.used_ns for each in candidates)[:most]


def test_what_was_fetched_and_opened_once_goes_before_all_else_but_for_a_tenth() -> None:
    written = [Candidate(FileId(inode), 10, used_ns=inode) for inode in range(9)]
    fetched = [Candidate(FileId(inode), 10, used_ns=inode, on_probation=True) for inode in range(100, 104)]
    order = [candidate.inode for candidate in first_to_evict([*written, *fetched], 8)]
    assert order == [100, 101, 102, 103, 0, 1, 2, 3]
    kept = [Candidate(FileId(inode), 100, used_ns=inode) for inode in range(9)]
    assert [candidate.inode for candidate in first_to_evict([*kept, *fetched], 3)] == [0, 1, 2]


# --- room -------------------------------------------------------------------------------------------------------------


class Files:
    """Cached copies and disk: which files are open or have unknown names, and how much is free."""

    def __init__(self, index: Index, free_bytes: int, free_files: int = 0) -> None:
        self.index = index
        self.free_bytes = free_bytes
        self.free_files = free_files
        self.deleted = NOTHING
        """What is counted as free and is not free yet."""
        self.directories = 0
        """How many of them evictions leave empty, one for each file."""
        self.open: set[int] = set()
        self.elsewhere: set[int] = set()
        self.held: set[int] = set()
        """Files in directories that a user holds up."""
        self.gone: list[int] = []
        self.broken: set[int] = set()
        """Files on a disk that answers EIO."""
        self.takes: dict[int, int] = {}
        """The bytes that files take of the disk, where that is not their size."""

    def is_open(self, inode: FileId) -> bool:
        return inode in self.open

    def all_names_known(self, inode: FileId, entry: Entry) -> bool:
        if inode in self.held:
            raise FileBusyError("a process holds the lock of a file in this directory")
        return inode not in self.elsewhere

    def drop(self, path: bytes, inode: FileId, *, same_object: bool) -> bool:
        assert same_object
        if inode in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        entry = self.index.entries.get(inode)
        assert entry is not None
        entry.drop_name(path)
        if entry.names:
            self.index.entries.put(inode, entry)
        else:
            self.index.entries.discard(inode)
            self.free_bytes += self.takes.get(inode, entry.size_bytes)
            self.free_files += 1
            self.gone.append(inode)
        return True

    def space(self) -> DiskSpace:
        return DiskSpace(10**9, self.free_bytes, 1000, self.free_files)

    def drop_above(self, path: bytes) -> int:
        if not self.directories:
            return 0
        self.directories -= 1
        self.free_files += 1
        return 1

    async def drop_all(self, most: int) -> int:
        return sum(self.drop_above(b"") for _ in range(most))


@pytest.fixture
def files(index: Index) -> Files:
    return Files(index, free_bytes=10**9, free_files=1000)


def make_room_for(files: Files, events: EventLog | None = None, *, disk: int = 0, **limits: int | float) -> Room:
    settings_of_all = Limits(**{"max_bytes": 0, "min_free_bytes": 0, "low_watermark": 1.0, **limits})  # type: ignore[arg-type]
    return Room(
        settings_of_all,
        Disk(files.space, lambda: files.deleted, number=disk),
        files.index,
        cast(CachedCopies, files),
        cast(EmptiedDirectories, files),
        events=events or EventLog(lambda: 0.0),
        counters=Counters(),
    )


def put(index: Index, inode: int, size_bytes: int, used_ns: int = 0, state: EntryState = EntryState.CLEAN) -> None:
    names = [CachedName(b"blobs/%d" % inode, "etag")]
    index.entries.put(FileId(inode), Entry(state, size_bytes, 0, 0, names=names, used_ns=used_ns))


async def test_with_room_nothing_is_evicted(files: Files, index: Index) -> None:
    put(index, 1, 100)
    room = make_room_for(files, max_bytes=200)
    with trio.testing.assert_no_checkpoints():
        await room.make_room(100)
    assert files.gone == []


@pytest.mark.parametrize(
    ("cached", "free", "wanted", "has_spare"),
    [(100, 10**6, 260, True), (100, 10**6, 261, False), (0, 300, 100, True), (0, 299, 100, False)],
)
async def test_what_nobody_has_asked_for_has_room_below_the_watermark_and_above_twice_the_reserve(
    files: Files, index: Index, cached: int, free: int, wanted: int, *, has_spare: bool
) -> None:
    put(index, 1, cached)
    files.free_bytes = free
    room = make_room_for(files, max_bytes=400, low_watermark=0.9, min_free_bytes=100)
    assert room.has_spare(wanted) is has_spare
    assert files.gone == []


async def test_the_longest_unused_files_go_until_there_is_room(files: Files, index: Index, events: EventLog) -> None:
    for inode, used in ((1, 30), (2, 10), (3, 20), (4, 40)):
        put(index, inode, 100, used)
    room = make_room_for(files, events, max_bytes=400)
    await room.make_room(150)
    assert files.gone == [2, 3]
    assert [event.fields for event in events.since(0)] == [{"bytes": 200, "inodes": 2}]


async def test_many_more_go_than_are_looked_for_at_once(files: Files, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "_AT_ONCE", 3)
    for inode in range(1, 21):
        put(index, inode, 100, used_ns=inode)
    files.open |= {1, 2, 3, 5}
    await make_room_for(files, max_bytes=2000).make_room(1000)
    assert files.gone == [4, *range(6, 15)]


async def test_a_use_that_is_not_written_yet_counts(files: Files, index: Index) -> None:
    put(index, 1, 100, 10)
    put(index, 2, 100, 20)
    index.entries.used(FileId(1), 30)
    await make_room_for(files, max_bytes=200).make_room(50)
    assert files.gone == [2]


async def test_an_open_file_does_not_stand_in_the_way_of_others(files: Files, index: Index) -> None:
    put(index, 1, 500, used_ns=1)
    put(index, 2, 100, used_ns=2)
    put(index, 3, 100, used_ns=3)
    files.open.add(1)
    await make_room_for(files, max_bytes=700).make_room(100)
    assert files.gone == [2]


@pytest.mark.parametrize(
    ("limits", "free_bytes", "says"),
    [
        ({"max_bytes": 50}, 10_000, "evicting can't make enough; raise cache.max_bytes"),
        (
            {"min_free_bytes": 950},
            1000,
            "enough; lower the reserve (cache.min_free_share and cache.min_free_bytes), or free some disk",
        ),
        ({"max_bytes": 10_000, "min_free_bytes": 50}, 99, "evicting can't make enough; free some disk"),
        ({"max_bytes": 50}, 99, "evicting can't make enough; raise cache.max_bytes, or free some disk"),
    ],
)
async def test_only_a_limit_that_is_in_the_way_is_advised_to_be_changed(
    index: Index, limits: Mapping[str, Any], free_bytes: int, says: str
) -> None:
    with pytest.raises(CacheFullError) as refused:
        await make_room_for(Files(index, free_bytes), **limits).make_room(100)
    assert re.sub(r" \(working .*", "", str(refused.value)).endswith(says)


@pytest.mark.parametrize("state", [EntryState.DIRTY, EntryState.UPLOADING, EntryState.LOCAL])
async def test_what_the_store_does_not_have_stays(files: Files, index: Index, state: EntryState) -> None:
    put(index, 1, 100, state=state)
    with pytest.raises(CacheFullError):
        await make_room_for(files, min_free_bytes=10**9).make_room(1)
    assert files.gone == []


async def test_what_is_pinned_open_or_linked_from_elsewhere_stays(files: Files, index: Index) -> None:
    for inode in range(1, 6):
        put(index, inode, 100, inode)
    index.pins.add(b"blobs/1")
    files.open.add(2)
    files.elsewhere.add(3)
    room = make_room_for(files, max_bytes=500)
    await room.make_room(200)
    assert files.gone == [4, 5]
    with pytest.raises(CacheFullError, match=r"no room for 300 bytes: 300 cached, .* raise cache.max_bytes"):
        await room.make_room(300)
    assert files.gone == [4, 5]


async def test_what_a_user_holds_up_is_passed_over(files: Files, index: Index) -> None:
    for inode in range(1, 4):
        put(index, inode, 100, inode)
    files.held.add(1)
    await make_room_for(files, max_bytes=300).make_room(100)
    assert files.gone == [2]


async def test_what_the_disk_does_not_remove_is_passed_over_and_told_of(
    files: Files, index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    """An immutable file, or a directory with a bad block: the daemon goes on with the others."""
    for inode in range(1, 4):
        put(index, inode, 100, inode)
    files.broken = {1}
    await make_room_for(files, max_bytes=300).make_room(100)
    assert files.gone == [2]
    assert "can't remove copies from the disk (1), the last one: [Errno 5] Input/output error" in caplog.text


async def test_an_entry_without_names_stays(files: Files, index: Index) -> None:
    index.entries.put(FileId(1), Entry(EntryState.CLEAN, 100, 0, 0))
    with pytest.raises(CacheFullError):
        await make_room_for(files, max_bytes=100).make_room(50)
    assert files.gone == []


async def test_nothing_goes_for_what_can_never_fit(files: Files, index: Index) -> None:
    put(index, 1, 100)
    with pytest.raises(CacheFullError):
        await make_room_for(files, max_bytes=200).make_room(201)
    files.free_bytes = 1000
    with pytest.raises(CacheFullError):
        await make_room_for(files, min_free_bytes=500).make_room(601)
    assert files.gone == []
    await make_room_for(files, min_free_bytes=500).make_room(600)
    assert files.gone == [1]


async def test_an_error_of_another_disk_ends_no_eviction_and_one_of_the_first_does(files: Files, index: Index) -> None:
    other = id_on(1, 2)
    files.broken = {1, other}
    for inode in (FileId(1), other):
        index.entries.put(inode, Entry(EntryState.CLEAN, 100, 0, 0, names=[CachedName(b"blobs/%d" % inode, "e")]))
    rooms = Rooms([make_room_for(files), make_room_for(files, disk=1)], index, lambda _: 0)
    assert not rooms.evict_file(other)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        rooms.evict_file(FileId(1))


async def test_only_what_is_on_a_disk_goes_for_it_and_the_limit_is_of_each_disk(files: Files, index: Index) -> None:
    for inode in (*range(1, 4), *range(10, 13)):
        put(index, inode if inode < 10 else id_on(1, inode), 100, used_ns=inode)
    there = Files(index, free_bytes=10**9)
    places = {b"work/w": 1}
    rooms = Rooms(
        [make_room_for(files, max_bytes=300), make_room_for(there, disk=1, max_bytes=300)],
        index,
        lambda path: places.get(path, 0),
    )
    await rooms.make_room(100, b"work/w")
    assert (files.gone, there.gone) == ([], [id_on(1, 10)])
    await rooms.make_room(200, b"blobs")
    assert (files.gone, there.gone) == ([1, 2], [id_on(1, 10)])
    rooms.set_limits(Limits(100, 0, 1.0))
    with pytest.raises(CacheFullError):
        await rooms.make_room(101, b"work/w")
    await rooms.make_room(50, b"work/w")
    assert there.gone == [id_on(1, inode) for inode in (10, 11, 12)]


class _RoomFor:
    """The room on a disk that has room for so many bytes."""

    def __init__(self, number: int, spare_bytes: int) -> None:
        self.disk = SimpleNamespace(number=number)
        self.spare_bytes = spare_bytes

    def has_spare(self, wanted_bytes: int) -> bool:
        return wanted_bytes <= self.spare_bytes


def test_copies_have_spare_room_if_each_disk_has_it_for_its_own(index: Index) -> None:
    here, there = _RoomFor(0, 100), _RoomFor(1, 300)
    rooms = cast("list[Room]", [here, there])
    spread = Rooms(rooms, index, lambda path: int(path.startswith(b"there")), are_spread=True)
    assert spread.has_spare({b"there/a": 200, b"there/b": 100, b"here/a": 100})
    assert not spread.has_spare({b"there/a": 200, b"there/b": 101})
    assert not spread.has_spare({b"there/1/a": 200, b"there/2/b": 101})
    assert not spread.has_spare({b"here/a": 101})
    assert spread.has_spare({})
    here.spare_bytes = -1
    assert spread.has_spare_anywhere()
    assert not Rooms(rooms, index, lambda _: 0).has_spare_anywhere()
    there.spare_bytes = -1
    assert not spread.has_spare_anywhere()


async def test_nothing_is_looked_for_where_another_disk_has_no_copies(
    files: Files, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(index, 1, 100)
    files.free_bytes = 0
    monkeypatch.setattr(index.entries, "scan", pytest.fail)
    tries = []

    async def change() -> None:
        tries.append(1)
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        await make_room_for(files, disk=1).with_room(change)
    assert (files.gone, tries) == ([], [1])


async def test_another_disk_that_hangs_is_asked_in_a_thread_alone(
    files: Files, index: Index, autojump_clock: trio.testing.MockClock
) -> None:
    loop, is_asked, answer = threading.get_ident(), threading.Event(), threading.Event()
    room = make_room_for(files, disk=1)

    def space() -> DiskSpace:
        assert threading.get_ident() != loop
        is_asked.set()
        answer.wait()
        return files.space()

    room.disk = Disk(files.space, lambda: files.deleted, number=1)
    room.disk._measure = space
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        await trio.sleep(60)
        await trio.to_thread.run_sync(is_asked.wait)
        nursery.cancel_scope.cancel()
    answer.set()


async def test_a_file_with_several_names_goes_whole(files: Files, index: Index) -> None:
    names = [CachedName(b"blobs/a", "e"), CachedName(b"blobs/b", "e")]
    index.entries.put(FileId(1), Entry(EntryState.CLEAN, 100, 0, 0, names=names))
    room = make_room_for(files, max_bytes=100)
    index.pins.add(b"blobs/b")
    assert not room.evict_file(FileId(1))
    index.pins.remove(b"blobs/b")
    assert room.evict_file(FileId(1))
    assert not room.evict_file(FileId(1))
    assert files.gone == [1]
    assert room._counters.files_evicted == 1
    assert room._counters.bytes_evicted == 100


async def test_of_two_who_need_room_each_gets_it(files: Files, index: Index) -> None:
    for inode in range(1, 5):
        put(index, inode, 100, inode)
    files.free_bytes = 100
    room = make_room_for(files, min_free_bytes=100)

    async def take(wanted: int) -> None:
        await room.make_room(wanted)
        files.free_bytes -= wanted

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, 150)
        nursery.start_soon(take, 150)
    assert files.gone == [1, 2, 3]
    assert files.free_bytes == 100


async def test_out_of_inodes_files_go_however_small_they_are(files: Files, index: Index) -> None:
    for inode in range(1, 6):
        put(index, inode, 1, inode)
    files.free_files = 98
    await make_room_for(files, min_free_share=0.1).make_room(10)
    assert files.gone == [1, 2, 3]
    with pytest.raises(CacheFullError, match=r"of 1000 inodes free .* bytes are no help"):
        await make_room_for(files, min_free_share=0.2).make_room(10)


async def test_directories_that_evictions_leave_empty_count_as_inodes(files: Files, index: Index) -> None:
    for inode in range(1, 6):
        put(index, inode, 1, inode)
    files.free_files, files.directories = 97, 3
    await make_room_for(files, min_free_share=0.1).make_room(10)
    assert files.gone == [1, 2]
    files.directories, files.free_files = 60, 60
    await make_room_for(files, min_free_share=0.1).make_room(10)
    assert files.gone == [1, 2, 3, 4, 5]
    assert files.free_files == 101


async def test_a_change_for_which_the_disk_has_no_room_is_made_once_copies_have_gone(files: Files, index: Index) -> None:
    for inode in range(1, 5):
        put(index, inode, 2**20, inode)
    files.free_bytes = 100
    tries = []

    async def change() -> str:
        tries.append(files.free_bytes)
        if files.free_bytes < 2**20:
            raise OSError(errno.ENOSPC, "full")
        return "made"

    assert await make_room_for(files).with_room(change, 2**20) == "made"
    assert tries == [100, 100 + 2 * 2**20]
    assert files.gone == [1, 2]


async def test_copies_go_for_a_change_while_what_was_deleted_is_not_free_yet(
    files: Files, index: Index, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    put(index, 1, 2 * 2**20)
    files.free_bytes, files.deleted = 0, Space(1, 10**8)

    async def change() -> float:
        if files.free_bytes < 2**20:
            raise OSError(errno.ENOSPC, "full")
        return trio.current_time()

    began = trio.current_time()
    assert await make_room_for(files).with_room(change, 2**20) == began
    assert files.gone == [1]


async def test_what_is_free_already_but_not_reported_yet_is_no_room_for_a_change(
    files: Files, index: Index, autojump_clock: trio.testing.MockClock
) -> None:
    """The other process frees a file before it says so. Gain: too few copies went, and the change failed."""
    for inode in range(1, 5):
        put(index, inode, 2 * 2**20, inode)
    files.free_bytes = 0
    began = trio.current_time()

    def deleted() -> Space:
        return Space(len(files.gone), files.free_bytes) if trio.current_time() == began else NOTHING

    async def change() -> str:
        if files.free_bytes < 3 * 2**20:
            raise OSError(errno.ENOSPC, "full")
        return "made"

    room = make_room_for(files)
    room.disk = Disk(files.space, deleted)
    assert await room.with_room(change, 3 * 2**20) == "made"
    assert files.gone == [1, 2]


async def test_what_becomes_free_right_after_a_look_is_looked_at_again(
    files: Files, index: Index, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    """A thread frees what was evicted, and may be done between two questions about the disk."""
    put(index, 1, 2 * 2**20)
    files.free_bytes = 0
    looks = []

    def space() -> DiskSpace:
        seen = DiskSpace(10**9, files.free_bytes, 1000, 1000)
        looks.append(seen)
        return seen

    def deleted() -> Space:
        left, files.deleted = files.deleted, NOTHING
        if left != NOTHING:
            files.free_bytes = 2 * 2**20
        return left

    room = make_room_for(files)
    room.disk = Disk(space, deleted)

    def drop(path: bytes, inode: FileId, *, same_object: bool) -> bool:
        index.entries.discard(inode)
        files.deleted = Space(1, 2 * 2**20)
        return same_object

    files.drop = drop  # type: ignore[method-assign]

    async def change() -> str:
        if files.free_bytes < 2**20:
            raise OSError(errno.ENOSPC, "full")
        return "made"

    assert await room.with_room(change, 2**20) == "made"


@pytest.mark.promise("passthrough-room")
async def test_a_writer_passes_the_daemon_by_only_while_it_need_not_evict_for_it(
    files: Files, index: Index, events: EventLog, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    """On this disk of a GB, a quarter of it is what a writer could fill in an instant."""
    files.free_bytes = 200 * 10**6
    room = make_room_for(files, events, min_free_share=0.05)
    room.disk = Disk(files.space, lambda: files.deleted, trio.current_time)
    assert room.may_pass_by()
    await trio.sleep(2)  # until nobody wishes to pass by any more
    for inode in range(1, 10):
        put(index, inode, 10 * 10**6, inode)
    index.pins.add(b"blobs/9")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        await trio.sleep(20)
        assert files.gone == []
        assert not room.may_pass_by()
        await trio.sleep(0.5)
        assert files.gone == [1, 2, 3, 4, 5]
        assert room.may_pass_by()
        await trio.sleep(2)
        files.free_bytes = 200 * 10**6
        assert not room.may_pass_by()
        await trio.sleep(0.5)
        assert files.gone == [*range(1, 9)]
        assert room.may_pass_by()  # evicting more is in vain
        files.deleted = Space(1, 1)
        await trio.sleep(1)
        assert not room.may_pass_by()  # what is not free yet can be waited for
        files.deleted = NOTHING
        assert room.may_pass_by()
        assert [event.kind for event in events.since(0)] == ["evicted"]
        nursery.cancel_scope.cancel()
    assert [event.fields for event in events.since(0)] == [
        {"bytes": 50 * 10**6, "inodes": 5},
        {"bytes": 30 * 10**6, "inodes": 3},
    ]


async def test_who_waits_until_the_disk_is_free_keeps_nobody_from_evicting(
    files: Files, index: Index, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    put(index, 1, 100)
    files.free_bytes, files.deleted = 0, Space(1, 10**8)
    files.open.add(1)
    room = make_room_for(files, max_bytes=100)
    waits = trio.Event()

    async def change() -> float:
        waits.set()
        if not files.free_bytes:
            raise OSError(errno.ENOSPC, "full")
        return trio.current_time()

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(room.with_room, change)
        await waits.wait()
        await trio.testing.wait_all_tasks_blocked()
        files.open.clear()
        await room.make_room(50)
        assert files.gone == [1]
        assert trio.current_time() == began
        files.free_bytes = 10**8


async def test_a_change_that_fails_though_there_is_room_costs_no_copies(files: Files, index: Index) -> None:
    """As an attribute that is too large for its block, or a directory that takes no more names: ENOSPC too."""
    put(index, 1, 100)

    async def change() -> None:
        raise OSError(errno.ENOSPC, "too large")

    with pytest.raises(OSError, match="too large"):
        await make_room_for(files).with_room(change)
    assert files.gone == []


async def test_nothing_goes_for_a_change_that_is_too_large_for_the_disk(files: Files, index: Index) -> None:
    put(index, 1, 100)
    files.free_bytes = 0

    def change() -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        await make_room_for(files).with_room(partial(trio.to_thread.run_sync, change), 10**7)
    assert files.gone == []


@pytest.fixture
def is_full(files: Files) -> Callable[[], None]:
    """A change of a MiB, for which the disk has no room at first."""
    files.free_bytes = 0

    def change() -> None:
        if files.free_bytes < 2**20:
            raise OSError(errno.ENOSPC, "full")

    return change


async def test_more_goes_if_a_copy_took_less_than_its_size(
    files: Files, index: Index, is_full: Callable[[], None], autojump_clock: trio.testing.MockClock, threads_in_line: None
) -> None:
    """As one with holes, or where the file system compresses."""
    for inode in range(1, 7):
        put(index, inode, 2 * 2**20, inode)
    files.takes = {1: 0, 2: 0}
    await make_room_for(files).with_room_at_once(is_full)
    assert files.gone == [1, 2, 3]


async def test_no_more_goes_if_a_copy_took_more_than_its_size(
    files: Files, index: Index, is_full: Callable[[], None]
) -> None:
    """As one with blocks beyond its end: all sizes together are less than what is wanted."""
    for inode in range(1, 7):
        put(index, inode, 1, inode)
    files.takes = {1: 40 * 2**20}
    await make_room_for(files).with_room_at_once(is_full)
    assert files.gone == [1]


async def test_a_copy_is_fetched_when_enough_has_gone_not_only_by_the_sizes(
    files: Files, index: Index, autojump_clock: trio.testing.MockClock, threads_in_line: None
) -> None:
    for inode in range(1, 20):
        put(index, inode, 100, inode)
    files.free_bytes, files.takes = 100, dict.fromkeys(range(1, 20), 10)
    await make_room_for(files, min_free_bytes=100).make_room(50)
    assert files.free_bytes == 150
    assert files.gone == [1, 2, 3, 4, 5]


async def test_a_limit_of_the_disk_as_the_daemon_has_it_makes_copies_go(files: Files, index: Index) -> None:
    """A project quota on the store directory, for example: statvfs(3) shows what it leaves."""
    put(index, 1, 4 * 2**20)
    files.free_bytes = 0

    def change() -> None:
        if not files.free_bytes:
            raise OSError(errno.EDQUOT, "the project's limit")

    await make_room_for(files).with_room_at_once(change)
    assert files.gone == [1]


async def test_a_limit_of_somebody_else_is_no_reason_to_evict_or_to_wait(files: Files, index: Index) -> None:
    put(index, 1, 4 * 2**20)
    tries = []

    def change() -> None:
        tries.append(1)
        raise OSError(errno.EDQUOT, "the user's limit")

    with pytest.raises(OSError, match="the user's limit"):
        await make_room_for(files).with_room_at_once(change)
    assert (files.gone, tries) == ([], [1])


async def test_what_comes_and_goes_around_the_reserve_is_told_of_once(
    files: Files, events: EventLog, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    room = make_room_for(files, events, min_free_share=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        for free_files in (99, 100, 99, 110, 98, 112):
            files.free_files = free_files
            await trio.sleep(20)
        assert [event.kind for event in events.since(0)] == ["disk-full"]
        await trio.sleep(60)
        assert [event.kind for event in events.since(0)] == ["disk-full", "disk-has-room-again"]
        nursery.cancel_scope.cancel()


async def test_a_full_disk_is_told_once_and_when_it_has_room_again(
    files: Files, index: Index, events: EventLog, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    files.free_files = 50
    room = make_room_for(files, events, min_free_share=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        await trio.sleep(20)
        assert [event.kind for event in events.since(0)] == ["disk-full"]
        assert events.since(0)[0].fields["of"] == "inodes"
        assert "50 of 1000 inodes free" in str(events.since(0)[0].fields["problem"])
        files.free_files = 113
        await trio.sleep(6)
        assert [event.kind for event in events.since(0)] == ["disk-full", "disk-has-room-again"]
        nursery.cancel_scope.cancel()


async def test_a_disk_without_bytes_lacks_bytes_though_it_has_no_inodes_either(
    files: Files, events: EventLog, autojump_clock: trio.testing.MockClock, threads_in_line: None
) -> None:
    """XFS makes inodes as they are needed, and has none left when it has no bytes."""
    files.free_bytes = files.free_files = 0
    room = make_room_for(files, events, min_free_share=0.1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        await trio.sleep(20)
        fields = events.since(0)[0].fields
        assert fields["of"] == "bytes"
        assert "bytes are no help" not in str(fields["problem"])
        nursery.cancel_scope.cancel()


@pytest.fixture
def threads_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what should go to a thread at once: while a thread works, ``autojump_clock`` would take the time for idle."""

    async def run_sync(function: Callable[..., object], *arguments: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


async def test_the_reserve_is_looked_after_in_the_background(
    files: Files, index: Index, threads_in_line: None, autojump_clock: trio.testing.MockClock
) -> None:
    for inode in (1, 2, 3):
        put(index, inode, 100, inode)
    room = make_room_for(files, min_free_bytes=10**9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.run)
        await trio.sleep(20)
        assert files.gone == []
        files.free_bytes -= 150
        index.entries.used(FileId(1), 50)
        await trio.sleep(20)
        assert files.gone == [2, 3]
        stored = index.entries.get(FileId(1))
        assert stored is not None
        assert stored.used_ns == 50
        nursery.cancel_scope.cancel()


conditions = st.tuples(st.integers(0, 100), st.integers(0, 5), st.sampled_from("  dopl"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(1, 50), conditions, max_size=12), st.integers(1, 400))
def test_never_more_goes_than_needed_and_never_what_may_not(
    index: Index, contents: dict[int, tuple[int, int, str]], wanted: int
) -> None:
    for known, _ in list(index.entries.scan()):
        index.entries.discard(known)
    for pin in index.pins.all():
        index.pins.remove(pin)
    files = Files(index, free_bytes=0, free_files=1000)
    for inode, (size_bytes, used, condition) in contents.items():
        put(index, inode, size_bytes, used, EntryState.DIRTY if condition == "d" else EntryState.CLEAN)
        if condition == "o":
            files.open.add(inode)
        elif condition == "p":
            index.pins.add(b"blobs/%d" % inode)
        elif condition == "l":
            files.elsewhere.add(inode)
    may_go = {inode: (size, used) for inode, (size, used, condition) in contents.items() if condition == " "}
    freed = trio.run(make_room_for(files).evict, Space(0, wanted)).size_bytes
    assert freed == files.free_bytes == sum(may_go[inode][0] for inode in files.gone)
    assert freed >= wanted or set(files.gone) == set(may_go)
    if files.gone:
        assert freed - may_go[files.gone[-1]][0] < wanted
    order = sorted(may_go, key=lambda inode: (may_go[inode][1], inode))
    assert files.gone == order[: len(files.gone)]
