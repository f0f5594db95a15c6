"""Reading a daemon's journal from a position: ``events.jsonl`` of its store directory, after ``events.jsonl.1``.

A position is a file, by inode, and an offset in it. It stays valid after the daemon ends, and over one rotation; anything
older than ``events.jsonl.1`` is lost. Only complete lines count. Nothing here knows Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from holdfast.errors import ConfigurationError

_decode = msgspec.json.Decoder(dict[str, str | int | float | bool]).decode


class Position(NamedTuple):
    """The position where reading continues; ``inode`` 0 is before the oldest line."""

    inode: int = 0
    offset: int = 0


class JournalEvent(msgspec.Struct, frozen=True):
    """One line: time, kind, and all other fields."""

    time: float
    kind: str
    fields: dict[str, str]


def events_between(file: Path, start: Position, end: Position | None = None) -> tuple[list[JournalEvent], Position]:
    """Return the events from ``start`` to ``end``, or to the last complete line, and the position behind them.

    Raises ``ConfigurationError`` if the journal can't be read.
    """
    found: list[JournalEvent] = []
    with ExitStack() as stack:
        streams = {os.fstat(stream.fileno()).st_ino: stream for stream in _opened(file, stack)}
        if start.inode in streams:
            streams = dict(list(streams.items())[list(streams).index(start.inode) :])
        position = start
        for inode, stream in streams.items():
            first = start.offset if inode == start.inode else 0
            last = end.offset if end is not None and inode == end.inode else None
            events, offset = _read(stream, first, last)
            found += events
            position = Position(inode, offset)
            if last is not None:
                break
    return found, position


def _opened(file: Path, stack: ExitStack) -> Iterator[BinaryIO]:
    """Open both files, returned oldest first. The newer one is opened first, in case it is rotated in between."""
    opened = []
    for path in (file, file.with_suffix(file.suffix + ".1")):
        try:
            opened.append(stack.enter_context(path.open("rb")))
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise ConfigurationError(f"the journal {path} can't be read: {problem.strerror}") from None
    if not opened:
        raise ConfigurationError(f"{file}: there is no journal; it is events.jsonl in the daemon's store directory")
    return reversed(opened)


def _read(stream: BinaryIO, first: int, last: int | None) -> tuple[list[JournalEvent], int]:
    stream.seek(first)
    data = stream.read() if last is None else stream.read(max(0, last - first))
    data = data[: data.rfind(b"\n") + 1]
    return [event for event in map(_event, data.splitlines()) if event is not None], first + len(data)


def _event(line: bytes) -> JournalEvent | None:
    """Return the event of a line; None if a crash of the machine has damaged it."""
    try:
        fields = _decode(line)
        return JournalEvent(float(fields.pop("time")), str(fields.pop("kind")), shown(fields))
    except (msgspec.DecodeError, KeyError, ValueError):
        return None


def shown(fields: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return the fields of an event as text, because Spark's maps have values of one type."""
    return {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in fields.items()}
