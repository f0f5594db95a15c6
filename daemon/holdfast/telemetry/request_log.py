"""The log of requests: one line for each request of the mount, when it has its reply, while ``log.level`` is ``debug``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from errno import errorcode

from holdfast.system.text import shown
from holdfast.telemetry.operation_feed import Observed, OperationFeed

_log = logging.getLogger("holdfast.requests")
_NS_PER_MS = 1e6


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
