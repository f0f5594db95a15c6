"""Fetching objects: one fetch of an object at a time, in parallel ranges, checked before anybody reads it.

Steps: make room, stage a file, GET its parts, check them, place the file, write the entry. A crash before the last step
leaves a staged file, which the next start removes. A part whose digest does not match is fetched again (the fault may have
been on the way). After ``_TRIES`` tries the object itself counts as corrupt, and readers get EIO, unless the store vouches
for the bytes (``stale_notes``): of one part at once, else once the whole file is here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio
from trio.from_thread import check_cancelled

from holdfast.digest import Checksum, ChunkHasher, Fingerprint, Hasher, fingerprint_of_file
from holdfast.errors import (
    CacheFullError,
    HoldfastError,
    ObjectChangedError,
    ObjectCorruptError,
    ObjectMissingError,
    RemoteUnavailableError,
)
from holdfast.remote import ObjectInfo, RemoteStore
from holdfast.store import Staging, mark_copy
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.fair_slots import IN_BACKGROUND
from holdfast.transfer.listing_cache import KnownObject
from holdfast.transfer.partial_fetch import PartialFetch
from holdfast.transfer.remotes import ObjectPath
from holdfast.transfer.stale_notes import is_stale, may_be_stale

_PARALLEL_PARTS = 8
_TRIES = 3
_MOST_TOLD = 10_000


@dataclass(slots=True)
class Fetcher:
    """Brings objects into the staging directory and hands them to ``place``.

    ``make_room`` waits until that many bytes may be written; ``place`` puts a whole, verified file into the tree, in one
    uninterrupted step.
    """

    staging: Staging
    make_room: Callable[[int], Awaitable[None]]
    place: Callable[[PartialFetch, ObjectInfo], None]
    events: EventLog
    counters: Counters
    _fetches: dict[bytes, PartialFetch] = field(default_factory=dict, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _told_stale: set[tuple[bytes, str]] = field(default_factory=set, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve fetches until cancelled; those under way are given up then."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def fetch(self, target: ObjectPath, known: KnownObject) -> PartialFetch:
        """Return the fetch of ``target`` in the version ``known``: the one under way, or a new one."""
        fetch = self._fetches.get(target.path)
        if fetch is not None and fetch.known.etag == known.etag and not fetch.detached:
            fetch.in_background &= IN_BACKGROUND.get()
            return fetch
        if fetch is not None:
            fetch.detached = True
        assert self._nursery is not None, "the fetcher is not running"
        fetch = self._fetches[target.path] = PartialFetch(target, known)
        fetch.in_background = IN_BACKGROUND.get()
        self._nursery.start_soon(self._run_fetch, fetch)
        return fetch

    def fetch_of(self, path: bytes) -> PartialFetch | None:
        """Return the fetch that will be placed at ``path``, if one is under way."""
        return self._fetches.get(path)

    def fetches(self) -> list[PartialFetch]:
        """Return all fetches under way."""
        return list(self._fetches.values())

    def count_waited_for(self) -> int:
        """Return the number of fetches under way that somebody waits for."""
        return sum(not fetch.in_background for fetch in self._fetches.values())

    def detach(self, path: bytes) -> None:
        """Don't place the fetch of ``path``, a name that is gone or taken; it goes on for its readers."""
        fetch = self._fetches.pop(path, None)
        if fetch is not None:
            fetch.detached = True

    async def _run_fetch(self, fetch: PartialFetch) -> None:
        try:
            info = await self._download(fetch)
            if not fetch.detached:
                try:
                    self.place(fetch, info)
                except FileExistsError:
                    fetch.detached = True  # a file has come to be here meanwhile, and it may be unsent
            fetch.finish()
        except HoldfastError as problem:
            self._give_up(fetch, problem)
        except OSError as problem:
            self._give_up(fetch, _disk_error(problem))
        finally:
            if fetch.staged_name:
                self.staging.discard(fetch.staged_name)
            if self._fetches.get(fetch.target.path) is fetch:
                del self._fetches[fetch.target.path]
            fetch.let_go()

    def _give_up(self, fetch: PartialFetch, problem: HoldfastError) -> None:
        if not isinstance(problem, ObjectMissingError | ObjectChangedError):
            target = fetch.target
            self.events.emit("fetch-failed", object=target.key, store=target.remote.name, problem=str(problem))
        fetch.fail(problem)

    async def _download(self, fetch: PartialFetch) -> ObjectInfo:
        size_bytes = fetch.known.size_bytes
        fetch.staged(*await self._stage(size_bytes))
        if fetch.target.path != fetch.target.store_path:
            mark_copy(fetch.fd)
        IN_BACKGROUND.set(fetch.in_background)
        first = fetch.next_part()
        assert first is not None
        info = await self._download_part(fetch, first)
        await self._download_rest(fetch)
        if fetch.fingerprint is None:
            found = await trio.to_thread.run_sync(fingerprint_of_file, fetch.fd)
            if not fetch.whole_checked(found) and not await self._is_stale(fetch, info, found):
                for part in fetch.doubted:
                    self._tell_corrupt(fetch, part, _TRIES)
                raise self._corrupt(fetch)
        self.counters.objects_fetched += 1
        self.counters.bytes_fetched += size_bytes
        return info

    async def _stage(self, size_bytes: int) -> tuple[bytes, int]:
        """Return name and descriptor of a new file with room for so many bytes, which others may take meanwhile."""
        for _ in range(_TRIES):
            await self.make_room(size_bytes)
            try:
                return self.staging.create(size_bytes)
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
        raise CacheFullError(f"no room for {size_bytes} bytes: others take what is evicted for them")

    async def _download_rest(self, fetch: PartialFetch) -> None:
        problems: list[HoldfastError] = []

        async def fetch_parts() -> None:
            try:
                while (part := fetch.next_part()) is not None:
                    IN_BACKGROUND.set(fetch.in_background)  # by now somebody may wait for it
                    await self._download_part(fetch, part)
            except HoldfastError as problem:
                problems.append(problem)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(min(_PARALLEL_PARTS, fetch.queued_parts)):
                nursery.start_soon(fetch_parts)
        if problems:
            raise problems[0]

    async def _download_part(self, fetch: PartialFetch, part: int) -> ObjectInfo:
        access = fetch.target.remote.access
        start, end = fetch.part_range(part)
        is_whole = fetch.part_range(part) == (0, fetch.known.size_bytes)
        for attempt in range(_TRIES):
            await access.downloads.take(end - start)
            info, found = await access.read(_read_part, access.store, fetch.target.key, fetch.known, start, end, fetch.fd)
            if fetch.part_checked(part, found, Fingerprint.from_metadata(info.metadata, fetch.known.size_bytes)):
                self._tell_corrupt(fetch, part, attempt)
                return info
            if is_whole and await self._is_stale(fetch, info, found):
                return info
        if is_whole or not may_be_stale(access, info):
            self._tell_corrupt(fetch, part, _TRIES)
            raise self._corrupt(fetch)
        fetch.doubt(part)
        return info

    def _tell_corrupt(self, fetch: PartialFetch, part: int, times: int) -> None:
        """Report that the bytes of a part have arrived corrupt so many times."""
        for attempt in range(times):
            self.counters.corrupt_dropped += 1
            self.events.emit(
                "corrupt-arrival", object=fetch.target.key, store=fetch.target.remote.name, part=part, attempt=attempt + 1
            )

    async def _is_stale(self, fetch: PartialFetch, info: ObjectInfo, found: Fingerprint) -> bool:
        """Say whether the store has these bytes, and its noted digest is of others; if so, the fetch goes by the bytes."""

        async def fits(checksum: Checksum) -> bool:
            return await trio.to_thread.run_sync(partial(checksum.fits, may_go_on=check_cancelled), fetch.fd)

        target = fetch.target
        if not await is_stale(target.remote.access, info, fits):
            return False
        fetch.note_is_stale(found)
        if (target.path, info.etag) not in self._told_stale:
            if len(self._told_stale) >= _MOST_TOLD:
                self._told_stale.clear()
            self._told_stale.add((target.path, info.etag))
            self.events.emit("stale-digest", object=target.key, store=target.remote.name)
        return True

    def _corrupt(self, fetch: PartialFetch) -> ObjectCorruptError:
        target = fetch.target
        return ObjectCorruptError(
            f"{target.key} in {target.remote.access.store.url} differs from the digest stored with it: the object is "
            "corrupt, or another tool has rewritten it and kept its metadata"
        )


def _read_part(
    store: RemoteStore, key: str, known: KnownObject, start: int, end: int, fd: int
) -> tuple[ObjectInfo, Fingerprint]:
    """GET the bytes ``start`` to ``end`` into ``fd``; return the object's info and the fingerprint of these bytes."""
    body = store.read(key, start, end, known.etag)
    if known.etag not in ("", body.info.etag):
        raise ObjectChangedError(f"GET {key}: the store answers with another version than it was asked for")
    if body.info.size_bytes != known.size_bytes:
        raise ObjectChangedError(f"GET {key}: the object has {body.info.size_bytes} bytes, not {known.size_bytes}")
    hasher = Hasher(known.size_bytes) if end - start == known.size_bytes else ChunkHasher()
    offset = start
    for buffer in body.buffers:
        if offset + len(buffer) > end:  # it would overwrite what was checked
            raise RemoteUnavailableError(f"GET {key}: the store sends more than {end - start} bytes")
        hasher.update(buffer)
        _write_all(fd, buffer, offset)
        offset += len(buffer)
    if offset != end:
        raise RemoteUnavailableError(f"GET {key}: the store sent {offset - start} bytes instead of {end - start}")
    return body.info, hasher.finish()


def _write_all(fd: int, buffer: bytes, offset: int) -> None:
    view = memoryview(buffer)
    while len(view):
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def _disk_error(problem: OSError) -> HoldfastError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheFullError("the disk of the store is full: holdfast status says whether of bytes or of inodes")
    return HoldfastError(f"the disk of the store: {problem}")
