"""A file that is being fetched from a store: which of its parts may be read already.

A part is one chunk of the digest's geometry. It is readable when its bytes are in the staged file and, where the store keeps
chunk digests, have been checked: what is read from an unfinished fetch is never corrupt. Without chunk digests nothing may
be read before the whole file has been checked, except when there is no digest at all.

One request brings a run of consecutive parts, because a store may spend more on a request than on the bytes of a part
(``RemoteStore.longest_read_bytes``). The thread of a request takes the parts of its run in their order. The event loop may
take later parts away from it, for a reader who waits for one of them, or for others who wait for a turn. A thread may be
given up, and come back while another one reads the run in its place. By then it neither writes into the file nor tells of a
part: others may have read and checked what it would write over.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from holdfast.digest import Fingerprint, chunk_bytes_for, chunk_count
from holdfast.errors import HoldfastError, ObjectChangedError, ObjectMissingError, RemoteUnavailableError
from holdfast.system.file_id import file_stat
from holdfast.transfer.cached_listing import KnownObject
from holdfast.transfer.remotes import ObjectPath


@dataclass(frozen=True, slots=True, eq=False)
class PartReading:
    """One thread's reading of a run, which counts until the next one begins. ``parts``: what was left when it began."""

    parts: range


class PartRun:
    """The parts of one request that have not come yet. Safe to use from its threads and from the event loop."""

    def __init__(self, parts: range) -> None:
        """``parts``: consecutive, at least one."""
        self._lock = threading.Lock()
        self._left = parts
        self._writing = threading.Lock()
        """Held while a thread writes; the event loop never takes it."""
        self._reading: PartReading | None = None

    @property
    def left(self) -> range:
        """The parts that have not come: the first is the one that is read now."""
        return self._left

    def begin(self) -> PartReading:
        """Begin to read what is left, in place of whoever has begun before; waits until that thread does not write."""
        with self._writing, self._lock:
            self._reading = PartReading(self._left)
            return self._reading

    def came(self, reading: PartReading, tell: Callable[[], None]) -> bool:
        """Note for ``reading`` that its next part has come, and call ``tell``. Returns whether there is another to read.

        Raises ``RemoteUnavailableError`` if another thread reads the run by now.
        """
        with self._lock:
            self._check(reading)
            self._left = self._left[1:]
            tell()
            return bool(self._left)

    def write(self, reading: PartReading, fd: int, view: memoryview, offset: int) -> None:
        """Write for ``reading``. Raises ``RemoteUnavailableError`` as ``came`` does, and ``OSError``."""
        with self._writing:
            self._check(reading)
            while len(view):
                count = os.pwrite(fd, view, offset)
                view, offset = view[count:], offset + count

    def take_away(self, part: int) -> range:
        """Return ``part`` and all parts behind it, which the run then no longer has; none if ``part`` is being read."""
        with self._lock:
            place = max(1, part - self._left.start)
            taken, self._left = self._left[place:], self._left[:place]
            return taken

    def end(self) -> range:
        """Return the parts that have not come, which the run then no longer has. No thread begins to write for it."""
        with self._lock:
            left, self._left = self._left, range(0)
            self._reading = None
            return left

    def _check(self, reading: PartReading) -> None:
        if self._reading is not reading:
            raise RemoteUnavailableError("the bytes came too late, after the request was given up", of_store=False)


class PartialFetch:
    """One fetch. ``fd`` is the staged file: readable as far as ``wait_for`` allows, open while the fetch is held."""

    def __init__(self, target: ObjectPath, known: KnownObject) -> None:
        self.target = target
        self.known = known
        self.staged_name = b""
        self.fd = -1
        self.inode = 0
        self.fingerprint: Fingerprint | None = None
        """The fingerprint that the bytes were checked against; None until it is known."""
        self.expected: Fingerprint | None = None
        self._expected_is_known = False
        self.doubted: list[int] = []
        """The parts whose bytes differ from their digests, although the digests may be the ones that are wrong."""
        self.detached = False
        """True once the name is gone: the fetch goes on for those who read the file, but is not placed in the tree."""
        self.reported = False
        """True once an event has told that its readers won't get the rest."""
        self.in_background = False
        """True while nobody waits for it yet."""
        self._holders = 1
        self._part_bytes = chunk_bytes_for(known.size_bytes)
        self._parts = chunk_count(known.size_bytes)
        self._queued = deque(range(self._parts))
        self._runs: list[PartRun] = []
        self._missing = set(self._queued)
        self._readable: set[int] = set()
        self._progress = trio.Event()
        """Set, and replaced by another one, when a part becomes readable, and at the end."""
        self._is_staged, self._has_ended = trio.Event(), trio.Event()
        """Events of their own: who waits for the whole file is not woken for what comes before."""
        self.finished = False
        """True once the file is whole and verified."""
        self._problem: HoldfastError | None = None

    @property
    def arrived_bytes(self) -> int:
        """The number of its bytes that can be read already."""
        return min(self.known.size_bytes, len(self._readable) * self._part_bytes)

    @property
    def has_come(self) -> bool:
        """True once the bytes of all parts are in the staged file."""
        return not self._missing

    @property
    def failed(self) -> bool:
        """True once the fetch has failed. The parts that are readable stay so."""
        return self._problem is not None

    @property
    def outdated(self) -> bool:
        """True if it failed because the object was replaced or deleted meanwhile."""
        return isinstance(self._problem, ObjectChangedError | ObjectMissingError)

    def hold(self) -> None:
        """Keep ``fd`` open until ``let_go``."""
        self._holders += 1

    def let_go(self) -> None:
        """Undo one ``hold``; the fetch itself holds once. The last one closes ``fd``."""
        self._holders -= 1
        if self._holders == 0 and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def staged(self, name: bytes, fd: int) -> None:
        """Note the staged file that takes the bytes."""
        self.staged_name, self.fd = name, fd
        self.inode = file_stat(fd).st_ino
        self._is_staged.set()

    async def wait_staged(self) -> None:
        """Wait until ``fd`` is open; a holder may use it then. Raises the error that ended the fetch."""
        if not self.staged_name:
            await self._wait(self._is_staged)

    def part_range(self, part: int) -> tuple[int, int]:
        """Return the first byte of ``part`` and the byte after its last."""
        start = part * self._part_bytes
        return start, min(start + self._part_bytes, self.known.size_bytes)

    def next_part(self) -> int | None:
        """Take the part to fetch next off the queue; None when all have been taken."""
        return self._queued.popleft() if self._queued else None

    def next_run(self, longest_bytes: int, shares: int) -> PartRun | None:
        """Take the parts to fetch next off the queue, for one request; None when all have been taken.

        They have at most ``longest_bytes`` and, if possible, leave as many to each other of ``shares`` requests. Without
        chunk digests it is one part: nothing vouches for a part before the answer has ended.
        """
        most = min(longest_bytes // self._part_bytes, 1 + (len(self._queued) - 1) // shares)
        if self.expected is None or not self.expected.chunks or self.doubted:
            most = 1
        first = self.next_part()
        if first is None:
            return None
        end = first + 1
        while end - first < most and self._queued and self._queued[0] == end:
            end += 1
            self._queued.popleft()
        run = PartRun(range(first, end))
        self._runs.append(run)
        return run

    def end_run(self, run: PartRun) -> None:
        """Queue what has not come of a run that has ended."""
        self._runs.remove(run)
        self._requeue(run.end())

    def shorten_run(self, run: PartRun) -> None:
        """Let a run end with the part that is read now, and queue the rest."""
        if left := run.left:
            self._requeue(run.take_away(left.start + 1))

    def _requeue(self, parts: range) -> None:
        self._queued.extendleft(reversed(parts))

    @property
    def queued_parts(self) -> int:
        """The number of parts that have not been taken yet."""
        return len(self._queued)

    def part_checked(self, part: int, found: Fingerprint, expected: Fingerprint | None) -> bool:
        """Compare the bytes of ``part`` with the store's digest; False when they differ. If they match, it becomes readable.

        ``found`` is the fingerprint of the whole file if that is one part, otherwise it holds the digest of this chunk only.
        Raises ``ObjectChangedError`` if an earlier part that matched came with another digest of the whole.
        """
        if self._expected_is_known and expected != self.expected:
            raise ObjectChangedError(f"GET {self.target.key}: its digest is another one than a moment ago")
        if not self._matches(part, found, expected):
            return False
        self._missing.discard(part)
        self.expected, self._expected_is_known = expected, True
        return True

    def doubt(self, part: int) -> None:
        """Believe the chunk digests no more: nothing further is readable before the whole file has been checked."""
        self.doubted.append(part)
        self._missing.discard(part)
        self.fingerprint = None

    def note_is_stale(self, found: Fingerprint) -> None:
        """Take the file's own fingerprint for the right one: the store vouches for its bytes, and the note is of others."""
        self.fingerprint, self.expected = found, None
        self._missing.clear()

    def _matches(self, part: int, found: Fingerprint, expected: Fingerprint | None) -> bool:
        if self._parts == 1:
            if expected is not None and expected.digest != found.digest:
                return False
            self.fingerprint = found
        elif expected is not None:
            if not expected.chunks or self.doubted:
                return True  # only the whole file can be checked: nothing is readable before
            if expected.chunks[part] != found.chunks[0]:
                return False
            self.fingerprint = expected
        self._readable.add(part)
        self._wake()
        return True

    def whole_checked(self, found: Fingerprint) -> bool:
        """Compare the fingerprint of the whole file, where there are no chunk digests; False when it differs."""
        self.fingerprint = found
        return self.expected is None or self.expected.digest == found.digest

    def finish(self) -> None:
        """Note that the whole file has been fetched and verified."""
        self.finished = True
        self._has_ended.set()
        self._wake()

    def fail(self, problem: HoldfastError) -> None:
        """Note that the fetch has failed with ``problem``, which is raised to all who wait."""
        self._problem = problem
        self._is_staged.set()
        self._has_ended.set()
        self._wake()

    async def wait_for(self, start: int, end: int) -> None:
        """Wait until the bytes ``start`` to ``end`` may be read; fetch them first. Raises the error that ended the fetch.

        Bytes beyond the end of the file are not waited for.
        """
        end = min(end, self.known.size_bytes)
        if start >= end:
            return
        parts = range(start // self._part_bytes, -(-end // self._part_bytes))
        if not self._missing.isdisjoint(parts):
            self._prefer(parts)
        while not self.finished and not self._readable.issuperset(parts):
            await self._wait(self._progress)

    def _prefer(self, parts: range) -> None:
        """Let ``parts`` be fetched next, and then those behind them: the reader may go on.

        All runs end with the part that is read now, or the reader would wait for the end of a whole run. They go on if these
        parts are read there now or next.
        """
        soon = {part for run in self._runs for part in run.left[: 1 + len(parts)]}
        is_late = any(part in self._queued or any(part in run.left for run in self._runs) for part in set(parts) - soon)
        if not is_late:
            return
        for run in self._runs:
            self.shorten_run(run)
        queued = sorted(self._queued)
        first = bisect_left(queued, parts.start)
        self._queued = deque(queued[first:] + queued[:first])

    async def wait_whole(self) -> None:
        """Wait until the file is whole and verified. Raises the error that ended the fetch."""
        if not self.finished:
            await self._wait(self._has_ended)

    async def _wait(self, event: trio.Event) -> None:
        """Wait for ``event``, unless the fetch has failed. Raises the error that ended it."""
        if self._problem is None:
            await event.wait()
        if self._problem is not None:
            raise self._problem

    def _wake(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
