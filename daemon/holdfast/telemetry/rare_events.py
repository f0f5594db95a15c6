"""Events that one user can cause as often as it likes: told once a minute, with their number."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.telemetry.events import EventLog

_SECONDS = 60.0
_MOST_KEPT = 1000


class RareEvents:
    """Emits events, but not two with the same kind and fields within a minute. ``clock`` returns seconds."""

    def __init__(self, events: EventLog, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._told: dict[tuple[object, ...], float] = {}
        self._untold: dict[tuple[object, ...], int] = {}

    def emit(self, kind: str, **fields: str | int) -> None:
        """Emit the event with a field ``times`` that counts it since the last one, or only count it."""
        key, now = (kind, *fields.values()), self._clock()
        times = self._untold.pop(key, 0) + 1
        if now - self._told.get(key, -_SECONDS) < _SECONDS:
            self._untold[key] = times
            return
        if len(self._told) >= _MOST_KEPT:
            self._forget(now)
        self._told[key] = now
        self._events.emit(kind, **fields, times=times)

    def _forget(self, now: float) -> None:
        """Forget what was told more than a minute ago and has not happened since."""
        self._told = {key: when for key, when in self._told.items() if now - when < _SECONDS or key in self._untold}
