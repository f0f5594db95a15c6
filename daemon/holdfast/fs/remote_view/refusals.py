"""Refused accesses as events, summed up: one user can't flood the journal."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.telemetry import EventLog

_SECONDS = 60.0
"""Between two events of the same user and store."""


class Refusals:
    """Counts by store and user. ``clock`` returns seconds."""

    def __init__(self, events: EventLog, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._told: dict[tuple[str, int], float] = {}
        self._untold: dict[tuple[str, int], int] = {}

    def note(self, store: str, uid: int) -> None:
        """User ``uid`` was refused access to an object of ``store``."""
        key, now = (store, uid), self._clock()
        times = self._untold.pop(key, 0) + 1
        if now - self._told.get(key, -_SECONDS) < _SECONDS:
            self._untold[key] = times
            return
        self._told[key] = now
        self._events.emit("access-refused", store=store, uid=uid, times=times)
