"""A daemon's journal read from a position on: ``events.jsonl`` of its store directory, and ``events.jsonl.1`` before it.

A position is a file, by its inode, and an offset in it. It outlives the daemon, and one change of files: what is older than
``events.jsonl.1`` is lost. Only whole lines count. Nothing here knows Spark.
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
    """Where reading goes on; ``inode`` 0 is before the oldest line there is."""

    inode: int = 0
    offset: int = 0


class JournalEvent(msgspec.Struct, frozen=True):
    """One line: when, what, and all the rest."""

    time: float
    kind: str
    fields: dict[str, str]


def events_between(file: Path, start: Position, end: Position | None = None) -> tuple[list[JournalEvent], Position]:
    """Return the events from ``start``, to ``end`` or to the last whole line, and the position behind them.

    Raises ``ConfigurationError`` when the journal can't be read.
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
    """Open both files, the older one first. The newer is opened first: between the two it may become the older."""
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
    """Return the event of a line; None for one that a crash of the machine has damaged."""
    try:
        fields = _decode(line)
        return JournalEvent(float(fields.pop("time")), str(fields.pop("kind")), shown(fields))
    except (msgspec.DecodeError, KeyError, ValueError):
        return None


def shown(fields: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return the fields of an event as text: Spark's maps have values of one type."""
    return {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in fields.items()}
