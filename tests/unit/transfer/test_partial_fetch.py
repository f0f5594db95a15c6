"""A fetch under way: which parts may be read, in which order they are fetched, and how all waiters learn of its end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from holdfast.digest import Fingerprint, chunk_bytes_for, chunk_count, fingerprint_of_buffer
from holdfast.errors import RemoteUnavailableError
from holdfast.transfer import KnownObject, ObjectPath, PartialFetch, Remote
from tests.support.processes.descriptors import open_below

MIB = 2**20
PART = 8 * MIB
SIZE = 3 * PART + 5
PROBLEM = RemoteUnavailableError("gone")
TARGET = ObjectPath(b"checkpoints/a", cast(Remote, None), "a", b"checkpoints/a")


def fetch_of(size_bytes: int) -> PartialFetch:
    return PartialFetch(TARGET, KnownObject(size_bytes, 0, "etag"))


@pytest.fixture
def fetch() -> PartialFetch:
    return fetch_of(SIZE)


@pytest.fixture(scope="module")
def expected() -> Fingerprint:
    """What four parts are checked by."""
    return fingerprint_of_buffer(bytes(PART) + b"1" * PART + b"2" * PART + b"34567")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    yield os.open(tmp_path / "staged", os.O_RDWR | os.O_CREAT)
    assert open_below(tmp_path) == [], "it was closed"


def part_of(expected: Fingerprint, part: int) -> Fingerprint:
    return Fingerprint(b"", (expected.chunks[part],))


class Reader:
    """Somebody who waits for bytes."""

    def __init__(self) -> None:
        self.has_read = False
        self.problem: Exception | None = None

    async def read(self, fetch: PartialFetch, start: int, end: int) -> None:
        try:
            await fetch.wait_for(start, end)
            self.has_read = True
        except RemoteUnavailableError as problem:
            self.problem = problem


# --- parts and their order --------------------------------------------------------------------------------------------


@given(st.integers(0, 2**45))
def test_the_parts_are_the_chunks_of_the_digest(size_bytes: int) -> None:
    fetch = fetch_of(size_bytes)
    ranges = []
    while (part := fetch.next_part()) is not None:
        ranges.append(fetch.part_range(part))
    assert len(ranges) == chunk_count(size_bytes)
    assert (ranges[0][0], ranges[-1][1]) == (0, size_bytes)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert all(end - start == chunk_bytes_for(size_bytes) for start, end in ranges[:-1])
    assert fetch.queued_parts == 0


async def test_what_somebody_waits_for_is_fetched_first(fetch: PartialFetch) -> None:
    assert fetch.next_part() == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch.wait_for, 2 * PART + 1, 3 * PART + 1)
        await wait_all_tasks_blocked()
        assert [fetch.next_part() for _ in range(4)] == [2, 3, 1, None]
        nursery.cancel_scope.cancel()


async def test_what_is_behind_a_part_that_somebody_waits_for_is_fetched_next(fetch: PartialFetch) -> None:
    assert fetch.next_part() == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch.wait_for, 2 * PART + 1, 2 * PART + 2)
        await wait_all_tasks_blocked()
        assert [fetch.next_part() for _ in range(4)] == [2, 3, 1, None]
        nursery.cancel_scope.cancel()


async def test_parts_that_are_under_way_are_not_fetched_again(fetch: PartialFetch) -> None:
    assert [fetch.next_part(), fetch.next_part()] == [0, 1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch.wait_for, 0, SIZE)
        await wait_all_tasks_blocked()
        assert fetch.queued_parts == 2
        assert [fetch.next_part() for _ in range(3)] == [2, 3, None]
        nursery.cancel_scope.cancel()


# --- what may be read -------------------------------------------------------------------------------------------------


async def test_a_checked_part_may_be_read_before_the_rest_is_here(fetch: PartialFetch, expected: Fingerprint) -> None:
    within, across = Reader(), Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(within.read, fetch, PART, 2 * PART)
        nursery.start_soon(across.read, fetch, PART - 1, PART + 1)
        await wait_all_tasks_blocked()
        assert fetch.part_checked(1, part_of(expected, 1), expected)
        await wait_all_tasks_blocked()
        assert (within.has_read, across.has_read) == (True, False)
        assert fetch.part_checked(0, part_of(expected, 0), expected)
    assert across.has_read
    assert not fetch.finished
    assert fetch.fingerprint == expected


async def test_a_part_that_differs_is_not_readable(fetch: PartialFetch, expected: Fingerprint) -> None:
    reader = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, fetch, PART, PART + 1)
        await wait_all_tasks_blocked()
        assert not fetch.part_checked(1, part_of(expected, 0), expected)
        await wait_all_tasks_blocked()
        assert not reader.has_read
        assert fetch.part_checked(1, part_of(expected, 1), expected)
    assert reader.has_read


async def test_without_chunk_digests_nothing_is_readable_before_the_whole_is_checked(
    fetch: PartialFetch, expected: Fingerprint
) -> None:
    whole_only = Fingerprint(expected.digest)
    reader = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, fetch, 0, 1)
        for part in range(4):
            assert fetch.part_checked(part, part_of(expected, part), whole_only)
        await wait_all_tasks_blocked()
        assert not reader.has_read
        assert fetch.fingerprint is None
        assert fetch.whole_checked(expected)
        fetch.finish()
    assert reader.has_read
    assert fetch.fingerprint == expected


def test_a_whole_that_differs_is_told(fetch: PartialFetch, expected: Fingerprint) -> None:
    whole_only = Fingerprint(expected.digest)
    for part in range(4):
        fetch.part_checked(part, part_of(expected, part), whole_only)
    assert not fetch.whole_checked(fingerprint_of_buffer(b"other"))


async def test_without_any_digest_every_part_may_be_read(fetch: PartialFetch, expected: Fingerprint) -> None:
    assert fetch.part_checked(0, part_of(expected, 3), None)
    await fetch.wait_for(0, PART)
    assert fetch.fingerprint is None
    assert fetch.whole_checked(expected)
    assert fetch.fingerprint == expected


async def test_a_file_of_one_part_is_checked_as_a_whole() -> None:
    right = fingerprint_of_buffer(b"bytes")
    fetch = fetch_of(5)
    assert not fetch.part_checked(0, fingerprint_of_buffer(b"byten"), right)
    assert fetch.fingerprint is None
    assert fetch.part_checked(0, right, right)
    await fetch.wait_for(0, 5)
    assert fetch.fingerprint == right
    unknown = fetch_of(5)
    assert unknown.part_checked(0, right, None)
    assert unknown.fingerprint == right


async def test_reading_at_or_beyond_the_end_waits_for_nothing(fetch: PartialFetch, autojump_clock: MockClock) -> None:
    with trio.fail_after(1):
        for start, end in ((SIZE, SIZE + 5), (SIZE + PART, SIZE + 2 * PART), (0, 0), (5, 5)):
            await fetch.wait_for(start, end)
        await fetch_of(0).wait_for(0, 4096)


async def test_a_read_across_the_end_waits_for_the_last_part(fetch: PartialFetch, expected: Fingerprint) -> None:
    reader = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, fetch, 3 * PART, SIZE + MIB)
        await wait_all_tasks_blocked()
        assert not reader.has_read
        fetch.part_checked(3, part_of(expected, 3), expected)
    assert reader.has_read


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_everybody_hears_of_the_end(fetch: PartialFetch) -> None:
    reader = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, fetch, 0, SIZE)
        nursery.start_soon(fetch.wait_whole)
        await wait_all_tasks_blocked()
        assert not fetch.finished
        fetch.finish()
    assert reader.has_read
    assert fetch.finished
    await fetch.wait_whole()
    await fetch.wait_for(0, SIZE)


async def test_everybody_hears_of_a_failure_also_later(fetch: PartialFetch) -> None:
    readers = [Reader() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for reader in readers:
            nursery.start_soon(reader.read, fetch, 0, SIZE)
        await wait_all_tasks_blocked()
        fetch.fail(PROBLEM)
    assert [reader.problem for reader in readers] == [PROBLEM] * 3
    assert fetch.failed
    assert not fetch.finished
    assert not fetch.outdated
    for wait in (fetch.wait_whole, fetch.wait_staged):
        with pytest.raises(RemoteUnavailableError, match="gone"):
            await wait()


async def test_what_is_here_may_be_read_after_a_failure(fetch: PartialFetch, expected: Fingerprint) -> None:
    fetch.part_checked(0, part_of(expected, 0), expected)
    fetch.fail(PROBLEM)
    await fetch.wait_for(0, PART)
    with pytest.raises(RemoteUnavailableError, match="gone"):
        await fetch.wait_for(0, PART + 1)


async def test_the_staged_file_is_announced_and_open_while_anybody_holds_it(fetch: PartialFetch, fd: int) -> None:
    staged = False

    async def wait() -> None:
        nonlocal staged
        await fetch.wait_staged()
        staged = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not staged
        fetch.staged(b"17", fd)
    assert staged
    assert (fetch.staged_name, fetch.fd, fetch.inode) == (b"17", fd, os.fstat(fd).st_ino)
    fetch.hold()
    fetch.let_go()
    os.fstat(fetch.fd)
    fetch.let_go()
    assert fetch.fd == -1
    await fetch.wait_staged()


def test_an_arrival_that_never_got_a_file_has_nothing_to_close(fetch: PartialFetch) -> None:
    fetch.let_go()
    assert fetch.fd == -1
