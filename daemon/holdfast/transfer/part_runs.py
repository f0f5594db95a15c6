"""Consecutive parts of an object that one request brings.

A store may spend more on a request than on the bytes of a part (``RemoteStore.longest_read_bytes``). The thread of a request
takes the parts of its run in their order. The event loop may take later parts away from it, for a reader who waits for one
of them, or for others who wait for a turn.
"""

from __future__ import annotations

import threading


class PartRun:
    """The parts of one request that have not come yet. Safe to use from its thread and from the event loop."""

    def __init__(self, parts: range) -> None:
        """``parts``: consecutive, at least one."""
        self._lock = threading.Lock()
        self._left = parts

    @property
    def left(self) -> range:
        """The parts that have not come: the first is the one that is read now."""
        return self._left

    def came(self, part: int) -> bool:
        """Note that ``part``, the first, has come. Returns whether the caller is to read on.

        A thread that was given up, and comes back while another reads the run, is not to.
        """
        with self._lock:
            if self._left.start != part or not self._left:
                return False
            self._left = self._left[1:]
            return bool(self._left)

    def take_away(self, part: int) -> range:
        """Return ``part`` and all parts behind it, which the run then no longer has; none if ``part`` is being read."""
        with self._lock:
            place = max(1, part - self._left.start)
            taken, self._left = self._left[place:], self._left[:place]
            return taken

    def end(self) -> range:
        """Return the parts that have not come, which the run then no longer has."""
        with self._lock:
            left, self._left = self._left, range(0)
            return left
