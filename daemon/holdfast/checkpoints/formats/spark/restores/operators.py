"""The state stores of a query, by its operators' metadata or, without that, by the names that are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface import Fault
from holdfast.checkpoints.formats.spark.batch_log import (
    SparkCommit,
    SparkOffsets,
    partitions_in_settings,
    partitions_of_operator,
)
from holdfast.checkpoints.formats.spark.manifests import OPERATOR_METADATA, STATE_SCHEMA
from holdfast.checkpoints.formats.spark.names import DEFAULT_STORE, SparkKind, SparkName, StoreId, parse_spark
from holdfast.checkpoints.formats.spark.restores.location import Findings, Location
from holdfast.checkpoints.formats.spark.small_files import OperatorStores
from holdfast.checkpoints.manifests import Manifest

_VERSION_2 = b"/_metadata/v2/"
_MOST_STORES = 16
_MOST_LOST = 256
"""Metadata is anybody's who writes to the bucket. No operator has more stores; and so many partitions may have lost all that
they had, beside three of four of them."""


class Operators:
    """The operators of one location."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._metadata: dict[int, dict[int, bytes]] = {}
        self._schemas: list[bytes] = []
        self._listed: dict[int, set[StoreId]] = {}
        self._kinds: dict[int, set[SparkKind]] = {}
        self._read: dict[bytes, Manifest] = {}
        for name in location.relative():
            entry = parse_spark(name) if name.startswith(b"state/") else None
            if isinstance(entry, SparkName) and not entry.layers:
                self._add(name, entry)

    def _add(self, name: bytes, entry: SparkName) -> None:
        operator = int(name.split(b"/", 2)[1])
        if entry.kind is SparkKind.OPERATOR_METADATA:
            self._metadata.setdefault(operator, {})[-1 if entry.number is None else entry.number] = name
        elif entry.kind is SparkKind.STATE_SCHEMA:
            self._schemas.append(name)
        elif entry.store is not None:
            self._listed.setdefault(operator, set()).add(entry.store)
            self._kinds.setdefault(operator, set()).add(entry.kind)

    def read(self) -> Asking[None]:
        """Read all metadata and schemas."""
        names = [name for versions in self._metadata.values() for name in versions.values()]
        self._read = yield from self._location.read(names, OPERATOR_METADATA)
        self._read.update((yield from self._location.read(self._schemas, STATE_SCHEMA)))

    def findings(self, batch: int) -> Findings:
        """Say what of these files a restart from ``batch`` reads, and what is wrong with it.

        Spark reads schemas to compare them, and makes those that are not there; metadata of version 1 it does not read.
        """
        found = Findings()
        newest = [name for operator in self._metadata for name in self._newest(operator, batch) if _VERSION_2 in name]
        for name in (*newest, *self._schemas):
            found.reads.append(self._location.whole(name))
            fault = self._location.unreadable(name, self._read[name])
            if fault is not None:
                found.faults.append(fault)
        found.faults += [fault for name in newest for fault in self._lost_schemas(self._read[name])]
        return found

    def kinds(self, operator: int) -> set[SparkKind]:
        """Return which kinds of files there are in the stores of an operator."""
        return self._kinds.get(operator, set())

    def stores(self, batch: int, offsets: SparkOffsets | None, commit: SparkCommit | None) -> dict[int, list[list[StoreId]]]:
        """Return for each operator, for each partition, its stores in the order of the operator's metadata."""
        by_commit = (commit.unique_ids if commit else None) or {}
        operators = self._metadata.keys() | self._listed.keys() | {operator for operator, _ in by_commit}
        return {operator: self._of_operator(operator, batch, offsets, by_commit) for operator in sorted(operators)}

    def _of_operator(
        self, operator: int, batch: int, offsets: SparkOffsets | None, by_commit: Collection[tuple[int, int]]
    ) -> list[list[StoreId]]:
        metadata = next((self._read[name] for name in self._newest(operator, batch)), None)
        there = self._listed.get(operator, set())
        if isinstance(metadata, OperatorStores):
            names: Iterable[bytes] = [name for name, _ in metadata.stores[:_MOST_STORES]]
            known = max((number for _, number in metadata.stores), default=0)
        else:
            names = sorted({store.store for store in there})[:_MOST_STORES] or [DEFAULT_STORE]
            known = 0
        partitions = partitions_of_operator(
            known,
            partitions_in_settings(offsets),
            max((store.partition + 1 for store in there), default=0),
            max((partition + 1 for each, partition in by_commit if each == operator), default=0),
        )
        partitions = min(partitions, 4 * len({store.partition for store in there}) + _MOST_LOST)
        return [[StoreId(operator, partition, name) for name in names] for partition in range(partitions)]

    def _newest(self, operator: int, batch: int) -> list[bytes]:
        """Return the name of the newest metadata not above ``batch``, if there is one."""
        versions = {number: name for number, name in self._metadata.get(operator, {}).items() if number <= batch}
        return [versions[max(versions)]] if versions else []

    def _lost_schemas(self, metadata: Manifest) -> Iterable[Fault]:
        """Find those that the metadata names by absolute paths, of a checkpoint that may have been moved since."""
        for path in metadata.schema_files if isinstance(metadata, OperatorStores) else ():
            _, marker, below = path.rpartition(b"/state/")
            fault = self._location.fault(b"state/" + below) if marker else None
            if fault is not None:
                yield fault
