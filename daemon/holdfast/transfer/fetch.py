"""Fetching: one flight for each object, in parallel ranges, checked before anybody reads it.

Steps: make room, stage a file, GET its parts, check them, place the file, write the entry. A crash before the
last step leaves a staged file, which the next start removes. A digest that does not match is fetched once more (the fault
may have been on the way); then the object itself is corrupt, and readers get EIO.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable

import trio

from holdfast.digest import ChunkHasher, Fingerprint, Hasher, fingerprint_of_file
from holdfast.errors import (
    CacheFullError,
    HoldfastError,
    ObjectChangedError,
    ObjectCorruptError,
    ObjectMissingError,
    RemoteUnavailableError,
)
from holdfast.remote import ObjectInfo, RemoteStore
from holdfast.store import Staging
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.listing_cache import KnownObject
from holdfast.transfer.partial_fetch import PartialFetch
from holdfast.transfer.remotes import ObjectPath

_PARALLEL_PARTS = 8
_TRIES = 3


class Fetcher:
    """Brings objects into the staging directory and hands them to ``place``.

    ``make_room`` waits until that many bytes may be written; ``place`` puts a whole, verified file into the tree, in one
    uninterrupted step.
    """

    def __init__(
        self,
        staging: Staging,
        *,
        make_room: Callable[[int], Awaitable[None]],
        place: Callable[[PartialFetch, ObjectInfo], None],
        events: EventLog,
        counters: Counters,
    ) -> None:
        self._staging = staging
        self._make_room = make_room
        self._place = place
        self._events = events
        self._counters = counters
        self._flights: dict[bytes, PartialFetch] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve fetches until cancelled; those under way are given up then."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def fetch(self, target: ObjectPath, known: KnownObject) -> PartialFetch:
        """Return the flight that brings ``target`` in the version ``known``: the one under way, or a new one."""
        flight = self._flights.get(target.path)
        if flight is not None and flight.known.etag == known.etag and not flight.detached:
            return flight
        if flight is not None:
            flight.detached = True
        assert self._nursery is not None, "the fetcher is not running"
        flight = self._flights[target.path] = PartialFetch(target, known)
        self._nursery.start_soon(self._fly, flight)
        return flight

    def flight_to(self, path: bytes) -> PartialFetch | None:
        """Return the flight to ``path``, if one is under way."""
        return self._flights.get(path)

    def flights(self) -> list[PartialFetch]:
        """Return all flights under way."""
        return list(self._flights.values())

    def detach(self, path: bytes) -> None:
        """The name ``path`` is gone or taken: let a flight to it end without being placed."""
        flight = self._flights.pop(path, None)
        if flight is not None:
            flight.detached = True

    async def _fly(self, arrival: PartialFetch) -> None:
        try:
            info = await self._bring(arrival)
            if not arrival.detached:
                self._place(arrival, info)
            arrival.finish()
        except HoldfastError as problem:
            self._give_up(arrival, problem)
        except OSError as problem:
            self._give_up(arrival, _disk_error(problem))
        finally:
            if arrival.staged_name:
                self._staging.discard(arrival.staged_name)
            if self._flights.get(arrival.target.path) is arrival:
                del self._flights[arrival.target.path]
            arrival.let_go()

    def _give_up(self, arrival: PartialFetch, problem: HoldfastError) -> None:
        if not isinstance(problem, ObjectMissingError | ObjectChangedError):
            target = arrival.target
            self._events.emit("fetch-failed", object=target.key, store=target.remote.name, problem=str(problem))
        arrival.fail(problem)

    async def _bring(self, arrival: PartialFetch) -> ObjectInfo:
        size_bytes = arrival.known.size_bytes
        await self._make_room(size_bytes)
        arrival.staged(*self._staging.create(size_bytes))
        first = arrival.next_part()
        assert first is not None
        info = await self._part(arrival, first)
        await self._rest(arrival)
        if arrival.fingerprint is None:
            found = await trio.to_thread.run_sync(fingerprint_of_file, arrival.fd)
            if not arrival.whole_checked(found):
                raise self._corrupt(arrival)
        self._counters.objects_fetched += 1
        self._counters.bytes_fetched += size_bytes
        return info

    async def _rest(self, arrival: PartialFetch) -> None:
        problems: list[HoldfastError] = []

        async def fetch_parts() -> None:
            try:
                while (part := arrival.next_part()) is not None:
                    await self._part(arrival, part)
            except HoldfastError as problem:
                problems.append(problem)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(min(_PARALLEL_PARTS, arrival.parts_waiting)):
                nursery.start_soon(fetch_parts)
        if problems:
            raise problems[0]

    async def _part(self, arrival: PartialFetch, part: int) -> ObjectInfo:
        access = arrival.target.remote.access
        start, end = arrival.part_range(part)
        for attempt in range(_TRIES):
            info, found = await access.read(
                _read_part, access.store, arrival.target.key, arrival.known, start, end, arrival.fd
            )
            if arrival.part_checked(part, found, Fingerprint.from_metadata(info.metadata, arrival.known.size_bytes)):
                return info
            self._counters.corrupt_dropped += 1
            self._events.emit(
                "corrupt-arrival",
                object=arrival.target.key,
                store=arrival.target.remote.name,
                part=part,
                attempt=attempt + 1,
            )
        raise self._corrupt(arrival)

    def _corrupt(self, arrival: PartialFetch) -> ObjectCorruptError:
        target = arrival.target
        return ObjectCorruptError(
            f"{target.key} in {target.remote.access.store.url} differs from the digest stored with it: the object is corrupt"
        )


def _read_part(
    store: RemoteStore, key: str, known: KnownObject, start: int, end: int, fd: int
) -> tuple[ObjectInfo, Fingerprint]:
    """GET the bytes ``start`` to ``end`` into ``fd``; return the object's info and the fingerprint of what came."""
    body = store.read(key, start, end, known.etag)
    if body.info.size_bytes != known.size_bytes:
        raise ObjectChangedError(f"GET {key}: the object has {body.info.size_bytes} bytes, not {known.size_bytes}")
    hasher = Hasher(known.size_bytes) if end - start == known.size_bytes else ChunkHasher()
    offset = start
    for buffer in body.buffers:
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
        return CacheFullError("the disk of the store is full; free some space or set cache.max_bytes lower")
    return HoldfastError(f"the disk of the store: {problem}")
