"""A daemon's events as a DataFrame: from its memory, over the control socket, or from its journal.

Both are of one node, the driver's. The journal has the events of earlier daemons too, and a stream over it continues after
any restart. Over the socket a stream sees the events in the daemon's memory; after a restart of the daemon it continues with
the new one's first event.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition, SimpleDataSourceStreamReader

from holdfast.control.client import ControlClient
from holdfast_spark.datasource.journal import JournalEvent, Position, events_between, shown

EVENTS = "number bigint, time timestamp, kind string, fields map<string, string>"
"""``number`` counts from the daemon's start; a journal does not record it."""

Row = tuple[int | None, datetime.datetime, str, dict[str, str]]
Offset = dict[str, int]


class Events(Protocol):
    """A source of events. Offsets are Spark's: plain dicts that it keeps in its checkpoint."""

    beginning: Offset

    def between(self, start: Offset, end: Offset | None) -> tuple[list[Row], Offset]:
        """Return the events from ``start`` to ``end``, or to the newest, and the offset behind them."""
        ...


class SocketEvents:
    """The events in a daemon's memory. An offset is the daemon's pid and the number of the last event."""

    beginning: Offset = {"pid": 0, "number": 0}  # noqa: RUF012 read only

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def between(self, start: Offset, end: Offset | None) -> tuple[list[Row], Offset]:
        """Ask the daemon. Events of an earlier daemon are gone. Raises ``DaemonUnreachableError``."""
        with ControlClient(self._socket) as client:
            pid = client.status().pid
            since = start["number"] if start["pid"] == pid else 0
            found = client.events(since)
        if end is not None:
            found = [event for event in found if pid == end["pid"] and event.number <= end["number"]]
        rows: list[Row] = [(event.number, _moment(event.time), event.kind, shown(event.fields)) for event in found]
        return rows, {"pid": pid, "number": found[-1].number if found else since}


class JournalEvents:
    """The events of a journal. An offset is a position in it."""

    beginning: Offset = Position()._asdict()

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def between(self, start: Offset, end: Offset | None) -> tuple[list[Row], Offset]:
        """Read the journal. Raises ``ConfigurationError``."""
        found, position = events_between(self._file, Position(**start), Position(**end) if end else None)
        return [_row(event) for event in found], position._asdict()


class EventReader(DataSourceReader):
    """All events so far. The driver reads them, because executors may run on nodes without this daemon."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def partitions(self) -> Sequence[InputPartition]:
        """Return the events as one task's partition."""
        return [InputPartition(self._events.between(self._events.beginning, None)[0])]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield the events."""
        rows: Iterable[Row] = partition.value
        return iter(rows)


class EventStreamReader(SimpleDataSourceStreamReader):
    """Events as they come. The driver reads them, because they are few."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        """Return the offset before the oldest event."""
        return self._events.beginning

    def read(self, start: Offset) -> tuple[Iterator[Row], Offset]:
        """Return what has come since."""
        rows, end = self._events.between(start, None)
        return iter(rows), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Row]:  # noqa: N802 Spark's name
        """Return a batch again, as far as its events still exist."""
        rows: Iterable[Row] = self._events.between(start, end)[0]
        return iter(rows)


def _row(event: JournalEvent) -> Row:
    return None, _moment(event.time), event.kind, event.fields


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
