"""The event journal: what an operator wants to know, in order, in memory and in a file of bounded size.

Events are rare (a corrupt file, an unreachable store, a lease), never one per request. Where users can cause them at will,
they are summed up (``telemetry.flood_guard``). The file is JSON lines, for root and the daemon's group, because it names
files. At its size limit it is renamed to ``NAME.1``, and a new one begins. A crash loses nothing that was written.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path

import msgspec
import trio

from holdfast.system.text import printable
from holdfast.telemetry.flood_guard import SUMMARY_SECONDS, FloodGuard, Subject
from holdfast.telemetry.private_files import MODE, withdraw
from holdfast.telemetry.wakeups import sleep_within

_log = logging.getLogger("holdfast.events")
_KEPT_IN_MEMORY = 10_000
_ROOT = 0
ALARMING = ("takeover-failed", "hang-ended")
"""Kinds that alerts are about. They are counted from 0 on: Prometheus sees no increase of a series that was not there."""
_LONGEST_TEXT = 4096  # characters of a field: as long as a path can be
_RARELY_SECONDS = 60.0
_MOST_RARE = 1000


class Event(msgspec.Struct, frozen=True):
    """One event: ``number`` counts from 1 at each daemon start, ``time`` is seconds since the epoch."""

    number: int
    time: float
    kind: str
    fields: dict[str, str | int | float | bool]

    def text(self) -> str:
        """Return the event on one line, whatever its file names and messages contain."""
        return printable(" ".join([self.kind, *(f"{name}={value}" for name, value in self.fields.items())]))


class EventLog:
    """Events of this run. ``emit`` is called on the event loop only."""

    def __init__(self, clock: Callable[[], float], file: Path | None = None, max_bytes: int = 4 * 2**20) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=_KEPT_IN_MEMORY)
        self._number = 0
        self._arrived = trio.Event()
        self._file = file
        self._max_bytes = max_bytes
        self._guard = FloodGuard()
        self.counts: Counter[str] = Counter(dict.fromkeys(ALARMING, 0))
        """The number of events by kind, including those that were only counted."""
        if file is not None:
            for each in (file, self._former):
                withdraw(each)

    def emit(self, kind: str, **fields: str | int | float | bool) -> None:
        """Record an event of ``kind`` (words with hyphens), or only count it if its subject causes too many.

        The subject is the user in the field ``uid``, unless that is root, else what the field ``path`` is in. Bytes of a
        file name that are not UTF-8 are escaped.
        """
        now = self._clock()
        self.counts[kind] += 1
        if fields.get("uid") == _ROOT or self._guard.admits(kind, _subject(fields), now):
            self._record(kind, now, fields)

    async def run(self) -> None:
        """Record the summaries of events that were only counted, until cancelled; then those that are left."""
        try:
            while True:
                await sleep_within(SUMMARY_SECONDS / 2)
                self._sum_up()
        finally:
            self._sum_up(all_of_it=True)

    def _sum_up(self, *, all_of_it: bool = False) -> None:
        now = self._clock()
        for each in self._guard.summaries(now, all_of_them=all_of_it):
            fields = {"of": each.kind, "by": each.subject, "more": each.more, "seconds": round(each.seconds, 1)}
            self._record("summed-up", now, fields)

    def _record(self, kind: str, now: float, fields: Mapping[str, str | int | float | bool]) -> None:
        self._number += 1
        event = Event(self._number, now, kind, {name: _as_utf8(value) for name, value in fields.items()})
        self._events.append(event)
        _log.info("%s", event.text())
        self._write(event)
        self._arrived.set()
        self._arrived = trio.Event()

    def since(self, number: int, limit: int = _KEPT_IN_MEMORY) -> list[Event]:
        """Return up to ``limit`` events after ``number``, oldest first, without those that are no longer in memory."""
        missing = self._number - len(self._events)
        start = max(0, number - missing)
        return list(islice(self._events, start, start + limit))

    async def wait_beyond(self, number: int) -> None:
        """Wait until there is an event after ``number``."""
        while self._number <= number:
            await self._arrived.wait()

    @property
    def _former(self) -> Path:
        assert self._file is not None
        return self._file.with_suffix(self._file.suffix + ".1")

    def _write(self, event: Event) -> None:
        if self._file is None:
            return
        line = (json.dumps({**event.fields, "time": event.time, "kind": event.kind}) + "\n").encode()
        try:
            fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
            try:
                written_bytes, size_bytes = os.write(fd, line), os.fstat(fd).st_size
                if written_bytes < len(line):  # a full disk takes a part; the next event would end up on the same line
                    os.ftruncate(fd, size_bytes - written_bytes)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                full = size_bytes > self._max_bytes
            finally:
                os.close(fd)
            if full:
                self._file.replace(self._former)
        except OSError as problem:
            _log.warning("can't write the event journal %s: %s", self._file, problem)


def _as_utf8(value: str | int | float | bool) -> str | int | float | bool:
    """Make a decoded file name fit for JSON, which can't contain lone surrogates."""
    return value.encode(errors="backslashreplace").decode()[:_LONGEST_TEXT] if isinstance(value, str) else value


def _subject(fields: Mapping[str, str | int | float | bool]) -> Subject:
    """Return whose allowance an event takes: its user's, or that of the directory at the top of a zone."""
    if "uid" in fields:
        return int(fields["uid"])
    return "/".join(str(fields.get("path", "")).split("/")[:2])


class JoinedEvents:
    """Emits events of one kind that come in series: the first at once, and what follows it together, once a minute.

    ``clock`` returns seconds.
    """

    def __init__(self, events: EventLog, kind: str, clock: Callable[[], float]) -> None:
        self._events = events
        self._kind = kind
        self._clock = clock
        self._told = -_RARELY_SECONDS
        self._untold: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """Emit an event with these amounts, or add them to those that the next one will have."""
        self._untold.update(amounts)
        self.tell()

    def tell(self, *, all_of_it: bool = False) -> None:
        """Emit what was held back long enough; ``all_of_it``: also what was not."""
        now = self._clock()
        if self._untold and (all_of_it or now - self._told >= _RARELY_SECONDS):
            self._events.emit(self._kind, **self._untold)
            self._untold.clear()
            self._told = now


class RareEvents:
    """Emits events that a user can cause at will, but not two with the same kind and fields within a minute.

    ``clock`` returns seconds.
    """

    def __init__(self, events: EventLog, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._told: dict[tuple[object, ...], float] = {}
        self._untold: dict[tuple[object, ...], int] = {}

    def emit(self, kind: str, **fields: str | int) -> None:
        """Emit the event with a field ``times`` that counts it since the last one, or only count it."""
        key, now = (kind, *fields.values()), self._clock()
        times = self._untold.pop(key, 0) + 1
        if now - self._told.get(key, -_RARELY_SECONDS) < _RARELY_SECONDS:
            self._untold[key] = times
            return
        if len(self._told) >= _MOST_RARE:
            self._forget(now)
        self._told[key] = now
        self._events.emit(kind, **fields, times=times)

    def _forget(self, now: float) -> None:
        """Forget what was told more than a minute ago and has not happened since."""
        self._told = {key: when for key, when in self._told.items() if now - when < _RARELY_SECONDS or key in self._untold}
