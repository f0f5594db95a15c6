"""A file on its way from the store: which parts are here and may be read already.

A part is one chunk of the digest's geometry. It counts as here when its bytes are in the staged file and, where the store
keeps chunk digests, have been checked: what is read from an unfinished arrival is never corrupt. Without chunk digests
nothing may be read before the whole file has been checked, except when there is no digest at all.
"""

from __future__ import annotations

import os
from collections import deque

import trio

from holdfast.digest import Fingerprint, chunk_bytes_for, chunk_count
from holdfast.errors import HoldfastError, ObjectChangedError, ObjectMissingError
from holdfast.transfer.listing_cache import KnownObject
from holdfast.transfer.remotes import ObjectPath


class PartialFetch:
    """One fetch. ``fd`` is the staged file, readable as far as ``wait_for`` allows, and open while anybody holds it."""

    def __init__(self, target: ObjectPath, known: KnownObject) -> None:
        self.target = target
        self.known = known
        self.staged_name = b""
        self.fd = -1
        self.inode = 0
        self.fingerprint: Fingerprint | None = None
        """What the bytes were checked by; None until that is known."""
        self.expected: Fingerprint | None = None
        self.detached = False
        """The name is gone: finish for those who read, but don't place the file."""
        self.reported = False
        """Its readers were told by an event that the rest will not come."""
        self._holders = 1
        self._part_bytes = chunk_bytes_for(known.size_bytes)
        self._waiting = deque(range(chunk_count(known.size_bytes)))
        self._here: set[int] = set()
        self._progress = trio.Event()
        self._finished = False
        self._problem: HoldfastError | None = None

    @property
    def finished(self) -> bool:
        """Whether the file is whole and verified."""
        return self._finished

    @property
    def failed(self) -> bool:
        """Whether the file will not come. What is here of it may be read."""
        return self._problem is not None

    @property
    def outdated(self) -> bool:
        """Whether it failed because the object is another one by now, or gone."""
        return isinstance(self._problem, ObjectChangedError | ObjectMissingError)

    def hold(self) -> None:
        """Keep ``fd`` open until ``let_go``."""
        self._holders += 1

    def let_go(self) -> None:
        """Undo one ``hold``; the flight itself holds once."""
        self._holders -= 1
        if self._holders == 0 and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def staged(self, name: bytes, fd: int) -> None:
        """Note where the bytes go."""
        self.staged_name, self.fd = name, fd
        self.inode = os.fstat(fd).st_ino
        self._wake()

    async def wait_staged(self) -> None:
        """Wait until ``fd`` is there; who holds may use it then. Raises what ended the fetch."""
        while not self.staged_name:
            await self._step()

    def part_range(self, part: int) -> tuple[int, int]:
        """Return the first byte of ``part`` and the byte after its last."""
        start = part * self._part_bytes
        return start, min(start + self._part_bytes, self.known.size_bytes)

    def next_part(self) -> int | None:
        """Take the part that should be fetched next; None when all are taken."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def parts_waiting(self) -> int:
        """How many parts nobody has taken yet."""
        return len(self._waiting)

    def part_checked(self, part: int, found: Fingerprint, expected: Fingerprint | None) -> bool:
        """Compare what came for ``part`` with what the store keeps; False when it differs. Then it is readable.

        ``found`` is the fingerprint of the whole file when it has one part, else holds the digest of this chunk alone.
        """
        self.expected = expected
        if chunk_count(self.known.size_bytes) == 1:
            if expected is not None and expected.digest != found.digest:
                return False
            self.fingerprint = found
        elif expected is not None:
            if not expected.chunks:
                return True  # only the whole can be checked: nothing is readable before
            if expected.chunks[part] != found.chunks[0]:
                return False
            self.fingerprint = expected
        self._here.add(part)
        self._wake()
        return True

    def whole_checked(self, found: Fingerprint) -> bool:
        """Compare the fingerprint of the whole file, where the parts could not tell; False when it differs."""
        self.fingerprint = found
        return self.expected is None or self.expected.digest == found.digest

    def finish(self) -> None:
        """Note that the whole file is here and verified."""
        self._finished = True
        self._wake()

    def fail(self, problem: HoldfastError) -> None:
        """Note that the file will not come."""
        self._problem = problem
        self._wake()

    async def wait_for(self, start: int, end: int) -> None:
        """Wait until the bytes ``start`` to ``end`` may be read; fetch them before others. Raises what ended the fetch.

        Bytes beyond the end of the file need not be waited for.
        """
        end = min(end, self.known.size_bytes)
        if start >= end:
            return
        parts = range(start // self._part_bytes, -(-end // self._part_bytes))
        for part in reversed(parts):
            if part in self._waiting:
                self._waiting.remove(part)
                self._waiting.appendleft(part)
        while not self._finished and not self._here.issuperset(parts):
            await self._step()

    async def wait_whole(self) -> None:
        """Wait until the file is whole and verified. Raises what ended the fetch."""
        while not self._finished:
            await self._step()

    async def _step(self) -> None:
        if self._problem is not None:
            raise self._problem
        await self._progress.wait()
        if self._problem is not None:
            raise self._problem

    def _wake(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
