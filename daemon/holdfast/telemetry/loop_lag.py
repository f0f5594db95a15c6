"""The lag of the event loop: everything that is ready waits for as long."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from holdfast.telemetry.latencies import Histogram, Latencies
from holdfast.telemetry.wakeups import wakeup_within

_BUSY_SECONDS, _IDLE_SECONDS = 1, 5
_BUSY_SHARE = 0.01
"""The share of a processor above which a daemon is busy."""
_NS = 1_000_000_000
_MS = 1_000_000
_LATE_NS = 10 * _MS
_BOUNDS_NS = (*(_MS, 2_500_000, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS), _NS, 5 * _NS)


class LoopLag:
    """Measures how much later than asked for a task goes on.

    It does so once a second, and every five seconds in a daemon that does next to nothing. Each second counts: a measurement
    after five of them counts five times. ``processor_seconds`` returns the processor time that the daemon has taken so far.
    """

    def __init__(self, processor_seconds: Callable[[], float] = time.process_time) -> None:
        self._processor_seconds = processor_seconds
        self._latencies = Latencies(1, _BOUNDS_NS)

    async def run(self) -> None:
        """Measure until cancelled."""
        seconds = _BUSY_SECONDS
        while True:
            taken, due = self._processor_seconds(), wakeup_within(seconds)
            counts = max(1, round(due - trio.current_time()))
            await trio.sleep_until(due)
            late_ns = max(0, round((trio.current_time() - due) * _NS))
            for _ in range(counts):
                self._latencies.observe(0, late_ns)
            is_busy = late_ns > _LATE_NS or self._processor_seconds() - taken > _BUSY_SHARE * counts
            seconds = _BUSY_SECONDS if is_busy else _IDLE_SECONDS

    def histogram(self) -> Histogram:
        """Return what was measured."""
        return self._latencies.histogram(0) or Histogram([(bound / _NS, 0) for bound in _BOUNDS_NS], 0, 0.0)
