"""Large objects are fetched by few requests, and however those go, what is placed has the object's bytes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from holdfast.digest import Fingerprint, Hasher
from holdfast.errors import HoldfastError, ObjectCorruptError, RemoteUnavailableError
from holdfast.remote import ObjectBody, ObjectInfo, RemoteStore
from holdfast.store import Staging
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import Fetcher, KnownObject, ObjectPath, PartialFetch, RemoteAccess
from holdfast.transfer.partial_fetch import PartReading, PartRun
from holdfast.transfer.remotes import Remote

MIB = 2**20
PART = 8 * MIB
PARTS = 40
SIZE = PARTS * PART
BUFFER = MIB
REQUESTS = 8
RUN_PARTS = 5
"""How many parts each request takes at first, so that all have as many."""


def bytes_at(offset: int) -> bytes:
    """Return the object's MiB at ``offset``: each is another one."""
    return (offset // BUFFER).to_bytes(8, "big") * (BUFFER // 8)


@pytest.fixture(scope="module")
def fingerprint() -> Fingerprint:
    hasher = Hasher(SIZE)
    for offset in range(0, SIZE, BUFFER):
        hasher.update(bytes_at(offset))
    return hasher.finish()


def whole_runs() -> list[tuple[int, int]]:
    """Return the first part of each run and the one behind its last, if no run is cut short."""
    runs = [(0, 1)]
    while (start := runs[-1][1]) < PARTS:
        runs.append((start, start + 1 + (PARTS - start - 1) // REQUESTS))
    return runs


class Scripted:
    """A store with one object. ``before`` is called in the thread before each MiB is yielded, and may replace it."""

    url = "scripted://"
    parallel_reads = REQUESTS
    longest_read_bytes = 8 * PART
    requests_in_a_call = 2
    has_checksums = False

    def __init__(self, metadata: dict[str, str]) -> None:
        self.asked: list[tuple[int, int]] = []
        self.before: Callable[[int, int], bytes | None] = lambda _, __: None
        self._info = ObjectInfo("a", SIZE, "etag", 0, metadata)
        self._lock = threading.Lock()

    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        assert (key, etag) == ("a", "etag")
        with self._lock:
            self.asked.append((start // PART, -(-end // PART)))
            number = len(self.asked)
        return ObjectBody(self._info, start, self._buffers(number, start, end))

    def _buffers(self, number: int, start: int, end: int) -> Iterator[bytes]:
        for offset in range(start, end, BUFFER):
            replaced = self.before(number, offset)
            yield bytes_at(offset) if replaced is None else replaced


class Fetching:
    """A fetcher, its store, and what it has placed."""

    def __init__(self, directory: Path, store: Scripted, parallel: int) -> None:
        self.store = store
        self.events = EventLog(lambda: 0.0)
        self.counters = Counters()
        self.access = RemoteAccess(
            "checkpoints",
            cast(RemoteStore, store),
            deadline_seconds=5.0,
            parallel=parallel,
            events=self.events,
            counters=self.counters,
            clock=lambda: 0.0,
        )
        self.placed: list[bytes] = []
        self._directory_fd = os.open(directory, os.O_RDONLY)
        self.fetcher = Fetcher(Staging(self._directory_fd), self._make_room, self._place, self.events, self.counters)

    def begin(self) -> PartialFetch:
        remote = cast(Remote, SimpleNamespace(name="checkpoints", access=self.access))
        return self.fetcher.fetch(ObjectPath(b"checkpoints/a", remote, "a", b"checkpoints/a"), KnownObject(SIZE, 0, "etag"))

    async def _make_room(self, size_bytes: int, path: bytes) -> None:
        assert size_bytes == SIZE

    def _place(self, fetch: PartialFetch, info: ObjectInfo) -> None:
        del info
        self.placed.append(b"".join(os.pread(fetch.fd, 8, offset) for offset in range(0, SIZE, BUFFER)))

    def assert_placed(self) -> None:
        """Check that the file was placed once, with every MiB where it belongs."""
        assert self.placed == [b"".join(bytes_at(offset)[:8] for offset in range(0, SIZE, BUFFER))]

    def corrupt_parts(self) -> list[int]:
        return [cast(int, event.fields["part"]) for event in self.events.since(0) if event.kind == "corrupt-arrival"]

    def close(self) -> None:
        os.close(self._directory_fd)


@asynccontextmanager
async def fetching(directory: Path, store: Scripted, parallel: int = REQUESTS) -> AsyncIterator[Fetching]:
    place = Fetching(directory, store, parallel)
    async with trio.open_nursery() as nursery:
        await nursery.start(place.fetcher.run)
        with trio.fail_after(60):
            yield place
        nursery.cancel_scope.cancel()
    place.close()


@pytest.fixture
def store(fingerprint: Fingerprint) -> Scripted:
    return Scripted(fingerprint.metadata())


async def test_a_large_object_needs_fewer_requests_than_it_has_parts(workspace: Path, store: Scripted) -> None:
    async with fetching(workspace, store) as place:
        await place.begin().wait_whole()
        place.assert_placed()
    assert store.asked[0] == (0, 1), "the first part comes by itself, so that it can be read soon"
    assert len(store.asked) < PARTS / 2
    assert max(end - start for start, end in store.asked) == RUN_PARTS
    fetched = sorted(part for run in store.asked for part in range(*run))
    assert fetched == list(range(PARTS)), "each part once"


async def test_a_part_that_comes_corrupt_is_fetched_again_by_itself(workspace: Path, store: Scripted) -> None:
    spoilt = 3 * PART + 2 * BUFFER
    store.before = lambda _, offset: bytes(BUFFER) if offset == spoilt and (3, 4) not in store.asked else None
    async with fetching(workspace, store) as place:
        await place.begin().wait_whole()
        place.assert_placed()
        assert place.corrupt_parts() == [3]
    assert store.asked.count((3, 4)) == 1
    assert sum(part == 3 for run in store.asked for part in range(*run)) == 2


async def test_a_part_that_is_corrupt_in_the_store_is_never_placed(workspace: Path, store: Scripted) -> None:
    store.before = lambda _, offset: bytes(BUFFER) if offset == 9 * PART else None
    async with fetching(workspace, store) as place:
        with pytest.raises(ObjectCorruptError):
            await place.begin().wait_whole()
        assert place.placed == []
        assert place.corrupt_parts() == [9] * 3


async def test_a_disk_that_fails_behind_the_first_part_ends_the_fetch_and_nothing_else(
    workspace: Path, store: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = PartRun.write

    def fail(run: PartRun, reading: PartReading, fd: int, view: memoryview, offset: int) -> None:
        if offset >= PART:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write(run, reading, fd, view, offset)

    async with fetching(workspace, store) as place:
        monkeypatch.setattr(PartRun, "write", fail)
        with pytest.raises(HoldfastError, match="Input/output error"):
            await place.begin().wait_whole()
        assert place.placed == []
        monkeypatch.undo()
        await place.begin().wait_whole()
        place.assert_placed()


async def test_of_an_answer_that_breaks_off_only_the_rest_is_asked_for_again(workspace: Path, store: Scripted) -> None:
    broken: list[int] = []

    def break_once(number: int, offset: int) -> None:
        if not broken and offset == 3 * PART + BUFFER and number > 1:
            broken.append(number)
            raise RemoteUnavailableError("the connection was closed")

    store.before = break_once
    async with fetching(workspace, store) as place:
        await place.begin().wait_whole()
        place.assert_placed()
    assert len(broken) == 1
    times = {part: sum(part in range(*run) for run in store.asked) for part in range(PARTS)}
    assert times[1] == times[2] == 1, "these had come"
    assert times[3] == 2


async def test_who_waits_for_a_later_part_of_a_run_gets_it_without_waiting_for_the_run(
    workspace: Path, store: Scripted
) -> None:
    """The first run stands still at its first part; another request brings what is behind."""
    standing, go_on = threading.Event(), threading.Event()

    def stand(number: int, offset: int) -> None:
        del number
        if offset == PART:
            standing.set()
            assert go_on.wait(60)

    store.before = stand
    async with fetching(workspace, store) as place:
        fetch = place.begin()
        await trio.to_thread.run_sync(standing.wait, 60)
        assert any(start == 1 and end - start == RUN_PARTS for start, end in store.asked)
        await fetch.wait_for(4 * PART, 4 * PART + 1)
        assert not fetch.finished
        go_on.set()
        await fetch.wait_whole()
        place.assert_placed()
    times = {part: sum(part in range(*run) for run in store.asked) for part in range(PARTS)}
    assert times[4] == 2, "asked for in the run, which then did not come to it"


async def test_who_waits_for_a_part_that_no_request_has_waits_for_no_run(workspace: Path, store: Scripted) -> None:
    """Two requests, whose runs stand still at their first parts, and then at any part but the one that is waited for."""
    store.parallel_reads = 2
    last, longest = PARTS - 1, 8
    standing, go_on, has_come = threading.Semaphore(0), threading.Event(), threading.Event()

    def stand(_: int, offset: int) -> None:
        if offset in (PART, (1 + longest) * PART):
            standing.release()
            assert go_on.wait(60)
        elif offset >= PART and offset // PART not in (1, 1 + longest, last):
            assert has_come.wait(60), "a run goes on"

    store.before = stand
    async with fetching(workspace, store) as place:
        fetch = place.begin()
        for _ in range(2):
            await trio.to_thread.run_sync(standing.acquire)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch.wait_for, SIZE - 1, SIZE)
            await wait_all_tasks_blocked()
            go_on.set()
        has_come.set()
        assert not fetch.finished
        await fetch.wait_whole()
        place.assert_placed()
    assert sorted(store.asked[:3]) == [(0, 1), (1, 1 + longest), (1 + longest, 1 + 2 * longest)]
    assert (last, PARTS) in store.asked[3:5], "by the first of both that ended"


async def test_a_reader_who_goes_on_from_part_to_part_ends_no_run(workspace: Path, store: Scripted) -> None:
    async with fetching(workspace, store) as place:
        fetch = place.begin()
        for part in range(PARTS):
            await fetch.wait_for(part * PART, (part + 1) * PART)
        await fetch.wait_whole()
        place.assert_placed()
    assert sorted(store.asked) == whole_runs()


async def test_a_run_ends_early_for_others_who_wait_for_a_turn(workspace: Path, store: Scripted) -> None:
    """Two of eight have a turn. The first run stands still at its third part until it is known that its first has come."""
    is_known, is_waiting = threading.Event(), threading.Event()

    def stand(_: int, offset: int) -> None:
        if offset == PART:
            assert is_waiting.wait(60)
        if offset == 3 * PART:
            assert is_known.wait(60)

    store.before = stand
    async with fetching(workspace, store, parallel=2) as place, trio.open_nursery() as nursery:
        fetch = place.begin()
        await fetch.wait_for(0, 1)
        nursery.start_soon(place.access.read, lambda: None)
        await wait_all_tasks_blocked()
        is_waiting.set()
        await fetch.wait_for(PART, PART + 1)
        is_known.set()
        await fetch.wait_whole()
        place.assert_placed()
    assert (1, 1 + RUN_PARTS) in store.asked
    assert {3, 4} & {start for start, _ in store.asked}, "the run did not come to all of its parts"


async def test_the_requests_of_one_fetch_do_not_wait_for_each_other(workspace: Path, store: Scripted) -> None:
    """Two of eight have a turn, and nobody else asks."""
    async with fetching(workspace, store, parallel=2) as place:
        await place.begin().wait_whole()
        place.assert_placed()
    assert sorted(store.asked) == whole_runs()


async def test_a_store_may_prefer_a_request_for_each_part(workspace: Path, store: Scripted) -> None:
    store.longest_read_bytes = 0
    async with fetching(workspace, store) as place:
        await place.begin().wait_whole()
        place.assert_placed()
    assert sorted(store.asked) == [(part, part + 1) for part in range(PARTS)]


async def test_within_a_limit_of_bytes_a_request_asks_for_one_part(workspace: Path, store: Scripted) -> None:
    async with fetching(workspace, store) as place:
        place.access.limit(0, 2**50, 0)
        await place.begin().wait_whole()
        place.assert_placed()
    assert sorted(store.asked) == [(part, part + 1) for part in range(PARTS)]


@pytest.mark.parametrize("kept", ["whole", "nothing"])
async def test_without_digests_of_chunks_a_request_asks_for_one_part(
    workspace: Path, fingerprint: Fingerprint, kept: str
) -> None:
    store = Scripted(Fingerprint(fingerprint.digest).metadata() if kept == "whole" else {})
    async with fetching(workspace, store) as place:
        await place.begin().wait_whole()
        place.assert_placed()
    assert sorted(store.asked) == [(part, part + 1) for part in range(PARTS)]


def test_a_thread_that_was_given_up_changes_nothing_while_another_reads_its_run(tmp_path: Path) -> None:
    run, told = PartRun(range(5, 9)), list[str]()
    first = run.begin()
    assert run.came(first, lambda: told.append("5 by the first"))
    second = run.begin()
    assert second.parts == range(6, 9)
    with (tmp_path / "staged").open("w+b", buffering=0) as file:
        run.write(second, file.fileno(), memoryview(b"second"), 0)
        with pytest.raises(RemoteUnavailableError):
            run.write(first, file.fileno(), memoryview(b"first"), 0)
        assert file.read() == b"second"
    with pytest.raises(RemoteUnavailableError):
        run.came(first, lambda: told.append("6 by the first"))
    assert run.came(second, lambda: told.append("6 by the second"))
    assert told == ["5 by the first", "6 by the second"]
    assert run.left == range(7, 9)
    run.end()
    with pytest.raises(RemoteUnavailableError):
        run.came(second, lambda: told.append("7, which others bring"))


def test_a_run_is_not_read_by_another_while_a_thread_writes(tmp_path: Path) -> None:
    """The first thread hangs in a write to a pipe that is full."""
    run = PartRun(range(5, 9))
    first, begun = run.begin(), threading.Event()
    reader, writer = os.pipe()

    def pwrite(fd: int, view: memoryview, offset: int) -> int:
        del offset
        return os.write(fd, view)

    def begin() -> None:
        run.begin()
        begun.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        writing = threading.Thread(target=run.write, args=(first, writer, memoryview(bytes(MIB)), 0))
        writing.start()
        os.read(reader, 1)
        threading.Thread(target=begin).start()
        received = 1
        while received < MIB:
            assert received > MIB // 2 or not begun.is_set(), "the rest may be in the pipe"
            received += len(os.read(reader, MIB // 16))
        writing.join()
        assert begun.wait(60)
    os.close(reader)
    os.close(writer)


def test_a_run_keeps_the_part_that_is_read_now() -> None:
    run = PartRun(range(5, 9))
    reading = run.begin()
    assert run.take_away(5) == range(6, 9)
    assert run.left == range(5, 6)
    assert not run.came(reading, lambda: None)
    assert not run.take_away(5)
    assert not run.end()
