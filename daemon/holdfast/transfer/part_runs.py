"""Consecutive parts of an object that one request brings.

A store may spend more on a request than on the bytes of a part (``RemoteStore.longest_read_bytes``). The thread of a request
takes the parts of its run in their order. The event loop may take later parts away from it, for a reader who waits for one
of them, or for others who wait for a turn.

A thread may be given up, and come back while another one reads the run in its place. By then it neither writes into the file
nor tells of a part: others may have read and checked what it would write over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import RemoteUnavailableError


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
