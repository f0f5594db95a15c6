"""What the cache holds, added up by directory."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any, cast

import trio

from holdfast.control.cache_usage import CacheSurvey
from holdfast.control.messages import CacheUsage, UsagePart
from holdfast.control.paths import Paths
from holdfast.index import Entries, Entry, EntryState, Index
from holdfast.index.records import CachedName
from holdfast.system.file_id import FileId


def paths() -> Paths:
    nothing = cast(Any, None)
    return Paths(nothing, nothing, "/mnt")


def put(index: Index, inode: int, path: bytes, size_bytes: int, state: EntryState = EntryState.CLEAN) -> None:
    names = [CachedName(path, "etag")] if state is EntryState.CLEAN else []
    index.entries.put(FileId(inode), Entry(state, size_bytes, 0, 0, b"d" * 16 if names else b"", names, path=path))


def sizes(found: CacheUsage | UsagePart) -> dict[str, int]:
    return {part.name: part.size_bytes for part in found.parts}


async def test_four_levels_are_added_up_from_wherever_one_looks(index: Index) -> None:
    put(index, 1, b"checkpoints/q/state/0/1.delta", 100)
    put(index, 2, b"checkpoints/q/offsets/0", 10)
    put(index, 3, b"checkpoints/q2/metadata", 7, EntryState.DIRTY)
    put(index, 4, b"checkpointsx/f", 1)
    put(index, 5, b"work/driver_a/f", 1000, EntryState.LOCAL)
    survey = CacheSurvey(index.entries, paths(), time.monotonic)
    top = await survey.below("/mnt")
    assert (top.files, top.size_bytes, top.unsent_bytes) == (4, 118, 7)
    assert sizes(top) == {"checkpoints": 117, "checkpointsx": 1}
    assert sizes(top.parts[0]) == {"q": 110, "q2": 7}
    assert [(part.is_directory, part.unsent_bytes) for part in top.parts[0].parts] == [(True, 0), (True, 7)]
    query = await survey.below("/mnt/checkpoints/q")
    assert sizes(query) == {"state": 100, "offsets": 10}
    assert [part.is_directory for part in query.parts[1].parts] == [False]
    assert sizes(top.parts[0].parts[0].parts[0]) == {"0": 100}
    assert top.parts[0].parts[0].parts[0].parts[0].is_directory
    assert (await survey.below("/mnt/checkpoints/q/offsets/0")).files == 1


async def test_only_the_largest_are_named_and_nothing_is_lost(index: Index) -> None:
    for number in range(500):
        put(index, number + 1, b"z/%d" % number, number)
    top = await CacheSurvey(index.entries, paths(), time.monotonic).below("/mnt/z")
    assert len(top.parts) == 121
    assert top.parts[0].name == "499"
    assert top.parts[-1].name == ""
    assert sum(part.size_bytes for part in top.parts) == top.size_bytes == sum(range(500))
    assert sum(part.files for part in top.parts) == 500


class Scanned:
    """The entries of an index, and how often they were gone through."""

    def __init__(self, index: Index) -> None:
        self._entries = index.entries
        self.passes = 0

    def scan(self, states: Collection[EntryState]) -> Iterator[tuple[int, Entry]]:
        self.passes += 1
        return self._entries.scan(states)


async def test_many_who_ask_cause_few_passes(index: Index, autojump_clock: trio.testing.MockClock) -> None:
    put(index, 1, b"z/a", 1)
    scanned = Scanned(index)
    survey = CacheSurvey(cast(Entries, scanned), paths(), trio.current_time)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(survey.below, "/mnt")
    assert scanned.passes == 1
    put(index, 2, b"z/b", 1)
    await trio.sleep(60)
    assert (await survey.below("/mnt")).files == 2
