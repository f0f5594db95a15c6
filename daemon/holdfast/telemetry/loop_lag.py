"""How late the event loop is: everything that is ready waits for as long."""

from __future__ import annotations

import trio

from holdfast.telemetry.latencies import Histogram, Latencies

_EVERY_SECONDS = 1.0
_NS = 1_000_000_000
_MS = 1_000_000
_BOUNDS_NS = (*(_MS, 2_500_000, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS), _NS, 5 * _NS)


class LoopLag:
    """Measures once a second how much later than asked for a task goes on."""

    def __init__(self) -> None:
        self._latencies = Latencies(1, _BOUNDS_NS)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = trio.current_time() + _EVERY_SECONDS
            await trio.sleep_until(due)
            self._latencies.observe(0, max(0, round((trio.current_time() - due) * _NS)))

    def histogram(self) -> Histogram:
        """Return what was measured."""
        return self._latencies.histogram(0) or Histogram([(bound / _NS, 0) for bound in _BOUNDS_NS], 0, 0.0)
