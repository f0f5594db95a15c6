"""A store's objects as a DataFrame, listed in parallel by prefix; as a stream, the objects that are new or changed.

A stream uses the modification times of the store, up to ``lag`` before its clock: an object may be dated before it is
visible, by as long as its upload takes. Each batch is a full listing, of which only the changes are passed on.
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
    """A listing job: everything below ``prefix`` of a store, in about ``parts`` tasks."""

    address: StoreAddress
    prefix: str
    parts: int

    def store(self) -> RemoteStore:
        """Open the store."""
        return self.address.open()

    def shares(self) -> Sequence[Sequence[Unit]]:
        """Divide the store into the units of each task."""
        store = self.store()
        units = patiently(lambda: divided(store, self.prefix, self.parts))
        tasks = min(len(units), self.parts * _TASKS_PER_PART)
        return [units[index::tasks] for index in range(tasks)]

    def found(self, units: Sequence[Unit]) -> Iterator[ObjectInfo | DirectoryInfo]:
        """Yield the entries of units as they are listed. If a listing fails, Spark retries the task."""
        store = self.store()
        return (info for unit in units for info in listed(store, unit))


class ListingReader(DataSourceReader):
    """All objects that exist now."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the store."""
        return [InputPartition(tuple(units)) for units in self._listing.shares()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task."""
        return OBJECTS.batches(map(_row, self._listing.found(partition.value)))


class ChangeReader(DataSourceStreamReader):
    """New and changed objects. An offset is a time by the store's clock; a batch has the times between two offsets."""

    def __init__(self, listing: Listing, lag_seconds: int) -> None:
        self._listing = listing
        self._lag_seconds = lag_seconds

    def initialOffset(self) -> Offset:  # noqa: N802 Spark's name
        """Return the offset before the oldest object."""
        return {"until_ns": 0}

    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:  # noqa: N802, ARG002 Spark's names
        """Return the time up to which objects are reported now. Spark 4.0 and 4.1 call without arguments."""
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
