"""A rate limit: callers that are ahead of it wait. Safe to use from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST_SECONDS = 0.5
"""The amount that may pass at once after a rest, in seconds of the rate: waits are few, and long enough to be worth it."""


class Pace:
    """Lets ``per_second`` of something pass; without a rate, all."""

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._due = clock()

    def take(self, amount: float) -> None:
        """Wait until ``amount`` may pass."""
        if self._per_second is None:
            return
        with self._lock:
            now = self._clock()
            self._due = max(self._due, now) + amount / self._per_second
            ahead_seconds = self._due - now
        if ahead_seconds > _BURST_SECONDS:
            self._sleep(ahead_seconds)
