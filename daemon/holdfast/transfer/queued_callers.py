"""Since when callers have waited in the kernel behind others whose operation the store does not answer.

The kernel holds a directory's lock while a name in it is created, renamed or removed. Whoever else wants to change the
directory comes to the daemon only when that has ended, and would then begin a deadline of its own: the last of N callers
would hear of the outage after N deadlines. So while operations fail, ``/proc`` is read now and then, and what a thread has
waited there already counts for its deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import trio

from holdfast.system.blocked_threads import blocked_threads

_SECONDS_BETWEEN_LOOKS = 2.0
_VALID_SECONDS = 5.0
"""The time after a look in which a thread that was blocked counts as coming from there."""


class QueuedCallers:
    """The threads that were seen to wait. A thread that was told of a failure begins anew."""

    def __init__(self, look: Callable[[], Mapping[int, int]] = blocked_threads) -> None:
        self._look = look
        self._next_look = -math.inf
        self._looked_at = -math.inf
        self._since: dict[int, tuple[int, float]] = {}
        """For each thread the number of times that it had gone to sleep, and the trio time at which it was first seen so."""

    async def look(self) -> None:
        """See who waits, unless that was done a moment ago. Call it after each failure."""
        now = trio.current_time()
        if now < self._next_look:
            return
        self._next_look = now + _SECONDS_BETWEEN_LOOKS
        try:
            blocked = await trio.to_thread.run_sync(self._look, abandon_on_cancel=True)
        except OSError:  # no descriptor is free, for example: the operation is tried again as without a look
            return
        known, now = self._since, trio.current_time()
        self._looked_at, self._since = now, {}
        for thread, sleeps in blocked.items():
            before = known.get(thread)
            self._since[thread] = before if before is not None and before[0] == sleeps else (sleeps, now)

    def began(self, thread: int) -> float:
        """Return the trio time from which ``thread``, whose request is here now, has waited."""
        now = trio.current_time()
        if thread not in self._since or now - self._looked_at > _VALID_SECONDS:
            return now
        return self._since[thread][1]

    def told(self, thread: int) -> None:
        """Note that ``thread`` hears of a failure: whatever it asks next is another operation."""
        self._since.pop(thread, None)
