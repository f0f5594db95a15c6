"""The event journal: what an operator wants to know, in order, in memory and in a file of bounded size.

Events are rare (a corrupt file, an unreachable store, a lease), never one per request. The file is JSON lines. At
its size limit it is renamed to ``NAME.1``, and a new one begins. A crash loses nothing that was written.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

_log = logging.getLogger("holdfast.events")
_KEPT_IN_MEMORY = 10_000


class Event(msgspec.Struct, frozen=True):
    """One event: ``number`` counts from 1 at each daemon start, ``time`` is seconds since the epoch."""

    number: int
    time: float
    kind: str
    fields: dict[str, str | int | float | bool]

    def text(self) -> str:
        """Return the event on one line, whatever its file names and messages contain."""
        text = " ".join([self.kind, *(f"{name}={value}" for name, value in self.fields.items())])
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class EventLog:
    """Events of this run. ``emit`` is called on the event loop only."""

    def __init__(self, clock: Callable[[], float], file: Path | None = None, max_bytes: int = 4 * 2**20) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=_KEPT_IN_MEMORY)
        self._number = 0
        self._arrived = trio.Event()
        self._file = file
        self._max_bytes = max_bytes

    def emit(self, kind: str, **fields: str | int | float | bool) -> None:
        """Record an event of ``kind`` (words with hyphens). Bytes of a file name that are not UTF-8 are escaped."""
        self._number += 1
        event = Event(self._number, self._clock(), kind, {name: _as_utf8(value) for name, value in fields.items()})
        self._events.append(event)
        _log.info("%s", event.text())
        self._write(event)
        self._arrived.set()
        self._arrived = trio.Event()

    def since(self, number: int) -> list[Event]:
        """Return the events after ``number``, oldest first, without those that are no longer in memory."""
        return [event for event in self._events if event.number > number]

    async def wait_beyond(self, number: int) -> None:
        """Wait until there is an event after ``number``."""
        while self._number <= number:
            await self._arrived.wait()

    def _write(self, event: Event) -> None:
        if self._file is None:
            return
        line = json.dumps({**event.fields, "time": event.time, "kind": event.kind}) + "\n"
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.write(fd, line.encode())
                full = os.fstat(fd).st_size > self._max_bytes
            finally:
                os.close(fd)
            if full:
                self._file.replace(self._file.with_suffix(self._file.suffix + ".1"))
        except OSError as problem:
            _log.warning("can't write the event journal %s: %s", self._file, problem)


def _as_utf8(value: str | int | float | bool) -> str | int | float | bool:
    """Make a decoded file name fit for JSON, which can't contain lone surrogates."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
