"""Recent operations for those who watch: one bounded buffer for all of them, filled only while somebody does.

A watcher has a position in the buffer. One that is too slow loses the oldest operations, and learns how many. The log, if it
wants operations, is given each at once. What an operation asks of a cache or a store on its way is noted in ``OBSERVED``, in
the context of the operation's task.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from errno import errorcode
from itertools import islice
from typing import NamedTuple

from holdfast.system.text import shown

_KEPT = 8192
SLOW_NS = 50_000_000
_SLOW_KEPT = 1000
_log = logging.getLogger("holdfast.requests")
_NS_PER_MS = 1e6


@dataclass(slots=True)
class Notes:
    """Notes on one operation below the file system: a miss, bytes fetched, what it waited for."""

    thread: int = 0
    """The thread that asks for it, by its number in the daemon's namespace; 0: unknown."""
    is_miss: bool = False
    fetched_bytes: int = 0
    store_requests: int = 0
    store_seconds: float = 0.0
    waits: dict[str, float] = field(default_factory=dict)
    """The seconds that it waited, by what for: ``fetch``, ``hash``, ``lock`` or ``turn``."""


OBSERVED: ContextVar[Notes | None] = ContextVar("OBSERVED", default=None)
"""The notes of the operation that the running task carries out."""


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Note how long the operation of the running task waits in the block. Enter it only where there is a wait."""
    notes = OBSERVED.get()
    began = time.perf_counter()
    try:
        yield
    finally:
        if notes is not None:
            notes.waits[what] = notes.waits.get(what, 0.0) + time.perf_counter() - began


class Observed(NamedTuple):
    """One operation. ``path`` and ``target`` are of the tree; the latter is the new name of RENAME and LINK.

    ``time_ns`` is its end, since the epoch. ``errno`` is 0 if it succeeded. ``is_object``: its file is, or is a copy of, an
    object of a store, so it was in the cache or ``notes.is_miss``. ``data_bytes`` were read or written through the daemon.
    """

    time_ns: int
    operation: str
    zone: str
    path: bytes
    target: bytes
    pid: int
    uid: int
    duration_ns: int
    errno: int
    is_object: bool
    data_bytes: int
    notes: Notes


class OperationFeed:
    """The buffer. ``switch`` is called with True before the first watcher comes, with False after the last has gone."""

    def __init__(self, switch: Callable[[bool], None]) -> None:
        self.is_watched = False
        """True while somebody watches."""
        self._switch = switch
        self._watchers = 0
        self._follower: Callable[[Observed], None] | None = None
        self._number = 0
        self._kept: deque[Observed] = deque(maxlen=_KEPT)

    def publish(self, operation: Observed) -> None:
        """Show an operation to all watchers."""
        self._kept.append(operation)
        self._number += 1
        if self._follower is not None:
            self._follower(operation)

    def follow(self, follower: Callable[[Observed], None] | None) -> None:
        """Call ``follower`` with each operation from now on, instead of an earlier one; None: nobody."""
        was, self._follower = self._follower, follower
        if was is None and follower is not None:
            self._comes()
        elif was is not None and follower is None:
            self._goes()

    @contextmanager
    def watched(self) -> Iterator[Callable[[], tuple[int, list[Observed]]]]:
        """Watch while the context lasts. Yields a function that returns what came since its last call.

        It returns the number of operations that were lost in between, and the others, oldest first.
        """
        self._comes()
        seen = self._number

        def more() -> tuple[int, list[Observed]]:
            nonlocal seen
            first_kept = self._number - len(self._kept)
            lost, begin = max(0, first_kept - seen), max(0, seen - first_kept)
            seen = self._number
            return lost, list(islice(self._kept, begin, None))

        try:
            yield more
        finally:
            self._goes()

    def _comes(self) -> None:
        if not self._watchers:
            self._switch(True)
        self._watchers += 1
        self.is_watched = True

    def _goes(self) -> None:
        self._watchers -= 1
        self.is_watched = self._watchers > 0
        if not self.is_watched:
            self._switch(False)
            self._kept.clear()


class SlowOperations:
    """Keeps the last thousand that took ``SLOW_NS`` or longer, whether anybody watched or not."""

    def __init__(self) -> None:
        self._kept: deque[Observed] = deque(maxlen=_SLOW_KEPT)

    def add(self, operation: Observed) -> None:
        """Keep an operation."""
        self._kept.append(operation)

    def about(self, path: bytes, most: int) -> list[Observed]:
        """Return the last ones, newest first, about ``path`` or what is below it (``b""``: all)."""
        return list(islice((each for each in reversed(self._kept) if _concerns(each, path)), most))


def _concerns(operation: Observed, path: bytes) -> bool:
    below = path + b"/" if path else b""
    names = filter(None, (operation.path, operation.target))
    return any(name == path or name.startswith(below) for name in names)


def follow_log_level(feed: OperationFeed) -> None:
    """Begin or end to log the operations of ``feed``, as the level of the log is now. Call it when that has changed."""
    feed.follow(_write if _log.isEnabledFor(logging.DEBUG) else None)


def _write(operation: Observed) -> None:
    _log.debug("%s", line(operation))


def line(operation: Observed) -> str:
    """Return what a request was about, who made it, how long it took, and what came of it."""
    target = f" -> {shown(operation.target)}" if operation.target else ""
    result = errorcode.get(operation.errno, str(operation.errno)) if operation.errno else "done"
    about = f"{operation.operation} {shown(operation.path) or '.'}{target}"
    took = f"{operation.duration_ns / _NS_PER_MS:.2f} ms"
    return ", ".join([f"{about}: {result} in {took}", *_notes(operation), f"pid {operation.pid}, uid {operation.uid}"])


def _notes(operation: Observed) -> Iterator[str]:
    notes = operation.notes
    if operation.is_object:
        yield "cache miss" if notes.is_miss else "cache hit"
    if operation.data_bytes:
        yield f"{operation.data_bytes} bytes"
    if notes.fetched_bytes:
        yield f"{notes.fetched_bytes} bytes fetched"
    if notes.store_requests:
        yield f"store requests: {notes.store_requests} in {notes.store_seconds * 1e3:.2f} ms"
    for what, seconds in notes.waits.items():
        yield f"{seconds * 1e3:.2f} ms waiting for {what}"
