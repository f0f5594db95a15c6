"""A store's objects as a DataFrame: each task lists some prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast_spark.datasource.division import Unit, divided, listed
from holdfast_spark.forms import OBJECTS
from holdfast_spark.stores import DirectoryInfo, ObjectInfo, StoreAddress, patiently

_PARTITIONS_PER_PART = 4


class Units(InputPartition):
    """What one task lists."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__(tuple(units))
        self.units = tuple(units)


class ListingReader(DataSourceReader):
    """Lists ``prefix`` of a store in about ``parts`` tasks."""

    def __init__(self, address: StoreAddress, prefix: str, parts: int) -> None:
        self._address = address
        self._prefix = prefix
        self._parts = parts

    def partitions(self) -> Sequence[Units]:
        """Divide the store."""
        store = self._address.open()
        units = patiently(lambda: divided(store, self._prefix, self._parts))
        tasks = min(len(units), self._parts * _PARTITIONS_PER_PART)
        return [Units(units[index::tasks]) for index in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task, as they are listed. A listing that breaks off is Spark's to begin anew."""
        store = self._address.open()
        units: tuple[Unit, ...] = partition.value
        return OBJECTS.batches(_row(info) for unit in units for info in listed(store, unit))


def _row(info: ObjectInfo | DirectoryInfo) -> tuple[Any, ...]:
    if isinstance(info, DirectoryInfo):
        return info.key, 0, info.modified_ns, "", True
    return info.key, info.size_bytes, info.modified_ns, info.etag, False
