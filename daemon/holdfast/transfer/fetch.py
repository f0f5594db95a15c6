"""Fetching objects: one fetch of an object at a time, in parallel runs of parts, checked before anybody reads it.

Steps: make room, stage a file, GET its parts, check them, place the file, write the entry. A crash before the last step
leaves a staged file, which the next start removes. A part whose digest does not match is fetched again (the fault may have
been on the way). After ``_TRIES`` tries the object itself counts as corrupt, and readers get EIO, unless the store vouches
for the bytes (``stale_notes``): of one part at once, else once the whole file is here.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import trio
from trio.from_thread import check_cancelled

from holdfast.digest import Checksum, Fingerprint, fingerprint_of_file
from holdfast.errors import (
    CacheFullError,
    HoldfastError,
    ObjectChangedError,
    ObjectCorruptError,
    ObjectMissingError,
    RemoteUnavailableError,
)
from holdfast.remote import ObjectInfo
from holdfast.store import Staging, mark_copy
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.cached_listing import KnownObject
from holdfast.transfer.library_calls import IN_BACKGROUND, WORK
from holdfast.transfer.partial_fetch import PartialFetch, PartRun
from holdfast.transfer.remotes import ObjectPath
from holdfast.transfer.run_reading import Arrivals, read_run
from holdfast.transfer.stale_notes import is_stale, may_be_stale
from holdfast.transfer.store_requests import RemoteAccess

_TRIES = 3
_MOST_TOLD = 10_000
_log = logging.getLogger("holdfast.remote")


@dataclass(slots=True)
class Fetcher:
    """Brings objects into the staging directory and hands them to ``place``.

    ``make_room`` waits until that many bytes may be written for a path; ``place`` puts a whole, verified file into the tree,
    in one uninterrupted step.
    """

    staging: Staging
    make_room: Callable[[int, bytes], Awaitable[None]]
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
        is_placed = False
        try:
            info = await self._download(fetch)
            if not fetch.detached:
                try:
                    self.place(fetch, info)
                    is_placed = True
                except FileExistsError:
                    fetch.detached = True  # a file has come to be here meanwhile, and it may be unsent
            fetch.finish()
        except HoldfastError as problem:
            self._give_up(fetch, problem)
        except OSError as problem:
            self._give_up(fetch, _disk_error(problem))
        finally:
            if fetch.staged_name and not is_placed:
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
        fetch.staged(*await self._stage(size_bytes, fetch.target.path))
        if fetch.target.path != fetch.target.store_path:
            mark_copy(fetch.fd)
        IN_BACKGROUND.set(fetch.in_background)
        WORK.set(fetch)
        first = fetch.next_part()
        assert first is not None
        info = await self._download_part(fetch, first)
        if fetch.queued_parts:
            await self._download_rest(fetch)
        if not fetch.has_come:
            raise RemoteUnavailableError(f"GET {fetch.target.key}: parts of it have not come")
        if fetch.fingerprint is None:
            found = await trio.to_thread.run_sync(fingerprint_of_file, fetch.fd)
            if not fetch.whole_checked(found) and not await self._is_stale(fetch, info, found):
                for part in fetch.doubted:
                    self._tell_corrupt(fetch, part, _TRIES)
                raise self._corrupt(fetch)
        self.counters.objects_fetched += 1
        self.counters.bytes_fetched += size_bytes
        _log.debug("fetched %s: %d bytes", os.fsdecode(fetch.target.path), size_bytes)
        return info

    async def _stage(self, size_bytes: int, path: bytes) -> tuple[bytes, int]:
        """Return name and descriptor of a new file for ``path``, with room for so many bytes, which others may take."""
        for _ in range(_TRIES):
            await self.make_room(size_bytes, path)
            try:
                return self.staging.create(size_bytes, path)
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
        raise CacheFullError(f"no room for {size_bytes} bytes: others take what is evicted for them")

    async def _download_rest(self, fetch: PartialFetch) -> None:
        problems: list[HoldfastError | OSError] = []
        access = fetch.target.remote.access
        store = access.store

        async def fetch_runs() -> None:
            try:
                while (run := fetch.next_run(_longest_run_bytes(access), store.parallel_reads)) is not None:
                    IN_BACKGROUND.set(fetch.in_background)  # by now somebody may wait for it
                    await self._download_run(fetch, run)
            except (HoldfastError, OSError) as problem:  # in the nursery's group of errors nobody would find it
                problems.append(problem)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(min(store.parallel_reads, fetch.queued_parts)):
                nursery.start_soon(fetch_runs)
        if problems:
            raise problems[0]

    async def _download_run(self, fetch: PartialFetch, run: PartRun) -> None:
        """Fetch the parts of a run. What its request does not come to is queued; what comes corrupt is fetched again."""
        access, parts, arrivals = fetch.target.remote.access, run.left, Arrivals(fetch, run)
        try:
            if len(parts) > 1:
                if access.downloads.is_limited:
                    await self._take(fetch, parts)
                await access.read(read_run, access.store, fetch, run, arrivals.tell)
            else:
                await self._download_part(fetch, parts.start)
                run.end()
        finally:
            fetch.end_run(run)
        for part in arrivals.corrupt():
            await self._download_part(fetch, part, failed=1)

    async def _take(self, fetch: PartialFetch, parts: range) -> None:
        """Wait until the bytes of ``parts`` may be fetched."""
        (start, _), (_, end) = fetch.part_range(parts[0]), fetch.part_range(parts[-1])
        await fetch.target.remote.access.downloads.take(end - start)

    async def _download_part(self, fetch: PartialFetch, part: int, failed: int = 0) -> ObjectInfo:
        """Fetch a part, whose bytes have come corrupt ``failed`` times already."""
        access = fetch.target.remote.access
        is_whole = fetch.part_range(part) == (0, fetch.known.size_bytes)
        for attempt in range(failed, _TRIES):
            if access.downloads.is_limited:
                await self._take(fetch, range(part, part + 1))
            found, info = await self._read_part(fetch, part)
            if fetch.part_checked(part, found, Fingerprint.from_metadata(info.metadata, fetch.known.size_bytes)):
                if attempt:
                    self._tell_corrupt(fetch, part, attempt)
                return info
            if is_whole and await self._is_stale(fetch, info, found):
                return info
        if is_whole or not may_be_stale(access, info):
            self._tell_corrupt(fetch, part, _TRIES)
            raise self._corrupt(fetch)
        fetch.doubt(part)
        return info

    async def _read_part(self, fetch: PartialFetch, part: int) -> tuple[Fingerprint, ObjectInfo]:
        """GET a part into the staged file; return its fingerprint and the object's info."""
        access, came = fetch.target.remote.access, list[tuple[Fingerprint, ObjectInfo]]()
        run = PartRun(range(part, part + 1))
        try:
            await access.read(read_run, access.store, fetch, run, lambda _, *arrived: came.append(arrived))
        finally:
            run.end()
        return came[0]

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


def _longest_run_bytes(access: RemoteAccess) -> int:
    """Return the most that one request asks for. What it takes of a limited pace, it takes at once."""
    return 0 if access.downloads.is_limited else access.store.longest_read_bytes


def _disk_error(problem: OSError) -> HoldfastError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return CacheFullError("the disk of the store is full: holdfast status says whether of bytes or of inodes")
    if problem.errno == errno.EXDEV:  # asked for again, it is fetched to that disk
        return ObjectChangedError("its directory was made anew on another disk during the fetch")
    return HoldfastError(f"the disk of the store: {problem}")
