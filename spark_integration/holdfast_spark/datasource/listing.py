"""A store's objects as a DataFrame: each task lists some prefixes. As a stream: those that have come or changed since.

A stream goes by the times that the store gives its objects, up to ``lag`` before its clock: an object may be dated before it
can be seen, by as long as it takes to send. Each batch is a whole listing, of which what is new is passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from holdfast_spark.arrow_forms import OBJECTS
from holdfast_spark.datasource.division import Unit, divided, listed
from holdfast_spark.stores import DirectoryInfo, ObjectInfo, RemoteStore, StoreAddress, is_private, patiently

_TASKS_PER_PART = 4

Offset = dict[str, int]


class Listing(NamedTuple):
    """What is to be listed: all below ``prefix`` of a store, in about ``parts`` tasks."""

    address: StoreAddress
    prefix: str
    parts: int

    def store(self) -> RemoteStore:
        """Open the store."""
        return self.address.open()

    def shares(self) -> Sequence[Sequence[Unit]]:
        """Divide the store into what each task lists."""
        store = self.store()
        units = patiently(lambda: divided(store, self.prefix, self.parts))
        tasks = min(len(units), self.parts * _TASKS_PER_PART)
        return [units[index::tasks] for index in range(tasks)]

    def found(self, units: Sequence[Unit]) -> Iterator[ObjectInfo | DirectoryInfo]:
        """Yield what units hold, as it is listed. A listing that breaks off is Spark's to begin anew."""
        store = self.store()
        return (info for unit in units for info in listed(store, unit))


class ListingReader(DataSourceReader):
    """All that there is now."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the store."""
        return [InputPartition(tuple(units)) for units in self._listing.shares()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task."""
        return OBJECTS.batches(map(_row, self._listing.found(partition.value)))


class ChangeReader(DataSourceStreamReader):
    """What has come or changed. An offset is a time by the store's clock: batches are the times between two of them."""

    def __init__(self, listing: Listing, lag_seconds: int) -> None:
        self._listing = listing
        self._lag_seconds = lag_seconds

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        """Return the offset before the oldest object."""
        return {"until_ns": 0}

    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:  # noqa: N802, ARG002 Spark's names
        """Return up to when objects are told of now; Spark 4.0 and 4.1 ask without arguments."""
        store = self._listing.store()
        until_ns = patiently(store.now_ns) - self._lag_seconds * 10**9
        return {"until_ns": max(until_ns, start["until_ns"] if start else 0)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide the store."""
        span = start["until_ns"], end["until_ns"]
        return [InputPartition((*span, tuple(units))) for units in self._listing.shares()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task."""
        after_ns, until_ns, units = partition.value
        found = (info for info in self._listing.found(units) if after_ns < info.modified_ns <= until_ns)
        return OBJECTS.batches(_row(info) for info in found if not is_private(info.key))


def _row(info: ObjectInfo | DirectoryInfo) -> tuple[Any, ...]:
    if isinstance(info, DirectoryInfo):
        return info.key, 0, info.modified_ns, "", True
    return info.key, info.size_bytes, info.modified_ns, info.etag, False
