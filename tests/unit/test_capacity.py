"""What goes when the disk gets full: as little as possible, the longest unused first, never what is open or pinned."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.capacity import Candidate, Limits, Room, Usage, bytes_to_free, can_ever_fit, first_to_evict
from holdfast.capacity import room as room_module
from holdfast.errors import CacheFullError
from holdfast.index import CachedName, Entry, EntryState, Index
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import CachedCopies

limits_of_any_kind = st.builds(
    Limits, st.just(0) | st.integers(1, 10_000), st.integers(0, 10_000), st.floats(0.01, 1.0, allow_nan=False)
)
usages = st.builds(Usage, st.integers(0, 20_000), st.integers(0, 20_000))


# --- policy -----------------------------------------------------------------------------------------------------------


def after(usage: Usage, freed_bytes: int, written_bytes: int) -> Usage:
    return Usage(usage.cached_bytes - freed_bytes + written_bytes, usage.free_bytes + freed_bytes - written_bytes)


def keeps(limits: Limits, usage: Usage) -> bool:
    return (not limits.max_bytes or usage.cached_bytes <= limits.max_bytes) and usage.free_bytes >= limits.min_free_bytes


@given(limits_of_any_kind, usages, st.integers(0, 10_000))
def test_nothing_must_go_exactly_when_there_is_room(limits: Limits, usage: Usage, wanted: int) -> None:
    assert (bytes_to_free(limits, usage, wanted) == 0) is keeps(limits, after(usage, 0, wanted))


@given(limits_of_any_kind, usages, st.integers(0, 10_000))
def test_what_must_go_is_enough_and_no_more_than_the_watermark_asks_for(limits: Limits, usage: Usage, wanted: int) -> None:
    needed = bytes_to_free(limits, usage, wanted)
    assert keeps(limits, after(usage, needed, wanted))
    if needed:
        less = after(usage, needed - 1, wanted)
        above_watermark = bool(limits.max_bytes) and less.cached_bytes > limits.max_bytes * limits.low_watermark - 1
        assert not keeps(limits, less) or above_watermark


def test_the_cache_shrinks_to_its_watermark_once_something_must_go() -> None:
    limits = Limits(1000, 0, 0.9)
    assert bytes_to_free(limits, Usage(1000, 5000), 0) == 0
    assert bytes_to_free(limits, Usage(990, 5000), 10) == 0
    assert bytes_to_free(limits, Usage(990, 5000), 11) == 101
    assert bytes_to_free(limits, Usage(1100, 5000), 0) == 200


def test_the_reserve_counts_without_a_limit() -> None:
    limits = Limits(0, 100, 0.9)
    assert bytes_to_free(limits, Usage(10**15, 150), 50) == 0
    assert bytes_to_free(limits, Usage(10**15, 150), 51) == 1
    assert bytes_to_free(limits, Usage(0, 20), 0) == 80


@given(limits_of_any_kind, usages, st.integers(0, 20_000))
def test_what_can_ever_fit_fits_when_all_of_the_cache_is_gone(limits: Limits, usage: Usage, wanted: int) -> None:
    assert can_ever_fit(limits, usage, wanted) is keeps(limits, after(usage, usage.cached_bytes, wanted))


@given(st.lists(st.builds(Candidate, st.integers(1, 100), st.integers(0, 100), st.integers(0, 5))), st.integers(0, 10))
def test_the_longest_unused_goes_first(candidates: list[Candidate], most: int) -> None:
    order = first_to_evict(iter(candidates), most)
    assert {*map(id, order)} <= {*map(id, candidates)}
    assert [each.used_ns for each in order] == sorted(each.used_ns for each in candidates)[:most]


def test_what_was_fetched_and_opened_once_goes_before_all_else_but_for_a_tenth() -> None:
    written = [Candidate(inode, 10, used_ns=inode) for inode in range(9)]
    fetched = [Candidate(inode, 10, used_ns=inode, on_probation=True) for inode in range(100, 104)]
    order = [candidate.inode for candidate in first_to_evict([*written, *fetched], 8)]
    assert order == [100, 101, 102, 103, 0, 1, 2, 3]
    kept = [Candidate(inode, 100, used_ns=inode) for inode in range(9)]
    assert [candidate.inode for candidate in first_to_evict([*kept, *fetched], 3)] == [0, 1, 2]


# --- room -------------------------------------------------------------------------------------------------------------


class Files:
    """Cached copies and disk: which files are open or have unknown names, and how much is free."""

    def __init__(self, index: Index, free_bytes: int) -> None:
        self.index = index
        self.free_bytes = free_bytes
        self.open: set[int] = set()
        self.elsewhere: set[int] = set()
        self.gone: list[int] = []

    def is_open(self, inode: int) -> bool:
        return inode in self.open

    def all_names_known(self, inode: int, entry: Entry) -> bool:
        return inode not in self.elsewhere

    def drop(self, path: bytes, inode: int, *, same_object: bool) -> bool:
        assert same_object
        entry = self.index.entries.get(inode)
        assert entry is not None
        entry.drop_name(path)
        if entry.names:
            self.index.entries.put(inode, entry)
        else:
            self.index.entries.discard(inode)
            self.free_bytes += entry.size_bytes
            self.gone.append(inode)
        return True


@pytest.fixture
def files(index: Index) -> Files:
    return Files(index, free_bytes=10**9)


def make_room_for(files: Files, events: EventLog | None = None, **limits: int | float) -> Room:
    settings_of_all = Limits(**{"max_bytes": 0, "min_free_bytes": 0, "low_watermark": 1.0, **limits})  # type: ignore[arg-type]
    return Room(
        settings_of_all,
        files.index,
        cast(CachedCopies, files),
        free_bytes=lambda: files.free_bytes,
        events=events or EventLog(lambda: 0.0),
        counters=Counters(),
    )


def put(index: Index, inode: int, size_bytes: int, used_ns: int = 0, state: EntryState = EntryState.CLEAN) -> None:
    names = [CachedName(b"blobs/%d" % inode, "etag")]
    index.entries.put(inode, Entry(state, size_bytes, 0, 0, names=names, used_ns=used_ns))


async def test_with_room_nothing_is_evicted(files: Files, index: Index) -> None:
    put(index, 1, 100)
    room = make_room_for(files, max_bytes=200)
    with trio.testing.assert_no_checkpoints():
        await room.make_room(100)
    assert files.gone == []


async def test_the_longest_unused_files_go_until_there_is_room(files: Files, index: Index, events: EventLog) -> None:
    for inode, used in ((1, 30), (2, 10), (3, 20), (4, 40)):
        put(index, inode, 100, used)
    room = make_room_for(files, events, max_bytes=400)
    await room.make_room(150)
    assert files.gone == [2, 3]
    assert [event.fields for event in events.since(0)] == [{"bytes": 200}]


async def test_many_more_go_than_are_looked_for_at_once(files: Files, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "_AT_ONCE", 3)
    for inode in range(1, 21):
        put(index, inode, 100, used_ns=inode)
    files.open |= {1, 2, 3, 5}
    await make_room_for(files, max_bytes=2000).make_room(1000)
    assert files.gone == [4, *range(6, 15)]


async def test_a_use_that_is_not_written_yet_counts(files: Files, index: Index) -> None:
    put(index, 1, 100, 10)
    put(index, 2, 100, 20)
    index.entries.used(1, 30)
    await make_room_for(files, max_bytes=200).make_room(50)
    assert files.gone == [2]


async def test_an_open_file_does_not_stand_in_the_way_of_others(files: Files, index: Index) -> None:
    put(index, 1, 500, used_ns=1)
    put(index, 2, 100, used_ns=2)
    put(index, 3, 100, used_ns=3)
    files.open.add(1)
    await make_room_for(files, max_bytes=700).make_room(100)
    assert files.gone == [2]


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


async def test_an_entry_without_names_stays(files: Files, index: Index) -> None:
    index.entries.put(1, Entry(EntryState.CLEAN, 100, 0, 0))
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


async def test_a_file_with_several_names_goes_whole(files: Files, index: Index) -> None:
    names = [CachedName(b"blobs/a", "e"), CachedName(b"blobs/b", "e")]
    index.entries.put(1, Entry(EntryState.CLEAN, 100, 0, 0, names=names))
    room = make_room_for(files, max_bytes=100)
    index.pins.add(b"blobs/b")
    assert not room.evict_file(1)
    index.pins.remove(b"blobs/b")
    assert room.evict_file(1)
    assert not room.evict_file(1)
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
        index.entries.used(1, 50)
        await trio.sleep(20)
        assert files.gone == [2, 3]
        stored = index.entries.get(1)
        assert stored is not None
        assert stored.used_ns == 50
        nursery.cancel_scope.cancel()


conditions = st.tuples(st.integers(0, 100), st.integers(0, 5), st.sampled_from("  dopl"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.integers(1, 50), conditions, max_size=12), st.integers(1, 400))
def test_never_more_goes_than_needed_and_never_what_may_not(
    index: Index, contents: dict[int, tuple[int, int, str]], wanted: int
) -> None:
    for inode, _ in list(index.entries.scan()):
        index.entries.discard(inode)
    for pin in index.pins.all():
        index.pins.remove(pin)
    files = Files(index, free_bytes=0)
    for inode, (size_bytes, used, condition) in contents.items():
        put(index, inode, size_bytes, used, EntryState.DIRTY if condition == "d" else EntryState.CLEAN)
        if condition == "o":
            files.open.add(inode)
        elif condition == "p":
            index.pins.add(b"blobs/%d" % inode)
        elif condition == "l":
            files.elsewhere.add(inode)
    may_go = {inode: (size, used) for inode, (size, used, condition) in contents.items() if condition == " "}
    freed = trio.run(make_room_for(files).evict, wanted)
    assert freed == files.free_bytes == sum(may_go[inode][0] for inode in files.gone)
    assert freed >= wanted or set(files.gone) == set(may_go)
    if files.gone:
        assert freed - may_go[files.gone[-1]][0] < wanted
    order = sorted(may_go, key=lambda inode: (may_go[inode][1], inode))
    assert files.gone == order[: len(files.gone)]
