"""Reading a run of parts (``PartRun``) in a thread, and telling the event loop of each part that has come."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import trio

from holdfast.digest import ChunkHasher, Fingerprint, Hasher, chunk_count
from holdfast.errors import HoldfastError, ObjectChangedError, RemoteUnavailableError
from holdfast.remote import ObjectBody, ObjectInfo, RemoteStore
from holdfast.transfer.partial_fetch import PartialFetch, PartRun
from holdfast.transfer.thread_calls import soon_here

Arrived = Callable[[int, Fingerprint, ObjectInfo], None]
"""A function that is told of each part in the reading thread: its number, its fingerprint, the object's info."""


class Arrivals:
    """The parts of a run that have come: its thread tells of them, and the event loop checks them."""

    def __init__(self, fetch: PartialFetch, run: PartRun) -> None:
        self._fetch = fetch
        self._run = run
        self._soon = soon_here()
        self._told: deque[tuple[int, Fingerprint, ObjectInfo]] = deque()
        self._corrupt: list[int] = []
        self._problem: HoldfastError | None = None

    def tell(self, part: int, found: Fingerprint, info: ObjectInfo) -> None:
        """Tell of a part, from the thread. Whoever waits for the thread knows of it by ``corrupt`` at the latest."""
        self._told.append((part, found, info))
        with suppress(trio.RunFinishedError):  # the daemon has ended meanwhile
            self._soon(self._note_all)

    def _note_all(self) -> None:
        while self._told:
            self._note(*self._told.popleft())

    def _note(self, part: int, found: Fingerprint, info: ObjectInfo) -> None:
        fetch = self._fetch
        try:
            if not fetch.part_checked(part, found, Fingerprint.from_metadata(info.metadata, fetch.known.size_bytes)):
                self._corrupt.append(part)
        except HoldfastError as problem:
            self._problem = problem
        if fetch.target.remote.access.waiting_beside(fetch):  # others wait for a turn
            fetch.shorten_run(self._run)

    def corrupt(self) -> list[int]:
        """Return the parts that came corrupt. Raises the error of a part that came with another digest of the whole.

        What the thread has told last may be noted only here: how calls of threads are made may have changed since the run
        began (``thread_calls``), and then the end of the thread can overtake it.
        """
        self._note_all()
        if self._problem is not None:
            raise self._problem
        return self._corrupt


def read_run(store: RemoteStore, fetch: PartialFetch, run: PartRun, arrived: Arrived) -> None:
    """GET the parts of a run into the staged file, and tell of each.

    An answer that breaks off after a part has come is no error: what is left of the run is to be asked for anew.
    """
    reading = run.begin()
    parts = reading.parts
    if not parts:  # it was read by a thread that was given up
        return
    key, known = fetch.target.key, fetch.known
    start, end = fetch.part_range(parts[0])[0], fetch.part_range(parts[-1])[1]
    body = store.read(key, start, end, known.etag)
    if known.etag not in ("", body.info.etag):
        raise ObjectChangedError(f"GET {key}: the store answers with another version than it was asked for")
    if body.info.size_bytes != known.size_bytes:
        raise ObjectChangedError(f"GET {key}: the object has {body.info.size_bytes} bytes, not {known.size_bytes}")
    fd = os.dup(fetch.fd)  # one that is closed by a given-up fetch may be another file's when this thread writes
    try:
        for part, found in _parts_in(body, fetch, parts[0], end, partial(run.write, reading, fd)):
            if not run.came(reading, partial(arrived, part, found, body.info)):
                break
    except RemoteUnavailableError:
        if run.left[:1] == parts[:1]:
            raise
    finally:
        os.close(fd)


def _parts_in(
    body: ObjectBody, fetch: PartialFetch, part: int, end: int, write: Callable[[memoryview, int], None]
) -> Iterator[tuple[int, Fingerprint]]:
    """Write the bytes from ``part`` to ``end`` by ``write``; yield each part, the last when the answer has ended."""
    key = fetch.target.key
    start, part_end = fetch.part_range(part)
    offset = start
    is_whole = chunk_count(fetch.known.size_bytes) == 1
    hasher: Hasher | ChunkHasher = Hasher(fetch.known.size_bytes) if is_whole else ChunkHasher()
    for buffer in body.buffers:
        view = memoryview(buffer)
        if offset + len(view) > end:  # it would overwrite what was checked
            raise RemoteUnavailableError(f"GET {key}: the store sends more than {end - start} bytes")
        while len(view):
            piece = view[: part_end - offset]
            hasher.update(piece)
            write(piece, offset)
            offset, view = offset + len(piece), view[len(piece) :]
            if offset == part_end < end:
                yield part, hasher.finish()
                part, hasher = part + 1, ChunkHasher()
                part_end = fetch.part_range(part)[1]
    if offset != end:
        raise RemoteUnavailableError(f"GET {key}: the store sent {offset - start} bytes instead of {end - start}")
    yield part, hasher.finish()
