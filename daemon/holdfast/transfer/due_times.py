"""When files and deletions are tried: times by path, of which the next is found without a look at all others.

A store that does not answer lets their number grow for as long as users write and delete.
"""

from __future__ import annotations

import heapq
import itertools
import math

_PASSED_OVER_AT_ONCE = 1000


class DueTimes:
    """A time for each path that waits for it. No method but ``take`` costs more with a million paths than with a few."""

    def __init__(self) -> None:
        self._times: dict[bytes, float] = {}
        self._numbers = itertools.count()
        self._by_time: list[tuple[float, int, bytes]] = []
        """A heap, in which those with the same time keep their order. What ``_times`` does not say is passed over when
        it comes to the top."""

    def __contains__(self, path: bytes) -> bool:
        return path in self._times

    def __len__(self) -> int:
        return len(self._times)

    def put(self, path: bytes, time: float) -> None:
        """Let a path be due at ``time``, in place of an earlier one."""
        self._times[path] = time
        heapq.heappush(self._by_time, (time, next(self._numbers), path))

    def discard(self, path: bytes) -> None:
        """Remove a path, if it is there."""
        self._times.pop(path, None)

    def next(self) -> float:
        """Return the time at which the next path is due, or one before it; infinity if there is none."""
        for _ in range(_PASSED_OVER_AT_ONCE):
            if not self._by_time or self._is_at_top():
                break
            heapq.heappop(self._by_time)
        return self._by_time[0][0] if self._by_time else math.inf

    def take(self, now: float, most: int) -> list[bytes]:
        """Remove and return up to ``most`` paths that are due, in the order of their times."""
        taken: list[bytes] = []
        while len(taken) < most and self.next() <= now:
            if not self._is_at_top():
                break  # there are more to be passed over
            _, _, path = heapq.heappop(self._by_time)
            del self._times[path]
            taken.append(path)
        return taken

    def _is_at_top(self) -> bool:
        """Say whether the top of the heap is still the time of its path."""
        time, _, path = self._by_time[0]
        return self._times.get(path) == time
