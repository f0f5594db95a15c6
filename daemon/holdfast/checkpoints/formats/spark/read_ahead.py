"""The files and directories that Spark reads next after it has opened a file.

A RocksDB snapshot names SSTs, which Spark asks for one at a time; fetched together they take as long as the largest. A query
begins by opening its checkpoint's ``metadata``, and then lists one log after the other, within a second or two. Its tasks
list their partitions, as many at once as the executor has cores, in the order of their numbers.

RocksDB opens all SSTs of a partition when it opens the partition, and reads the end of each: index, filter and properties.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from holdfast.checkpoints.formats.interface import FetchReferences, ListDirectories, ReadAhead
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot, read_spark_snapshot

_ANY_STORE = b"state/0/0/"
_END_PART = 64
_LEAST_END_BYTES = 2**16
"""RocksDB 9.8 with Spark's settings reads 943 KB of 68 MB where a key and its value take 130 bytes: a 72nd. Filters have 10
bits for each key, so where these are shorter it reads more of the end."""


def read_ahead(name: bytes) -> ReadAhead | None:
    """Return what an open of a file of this name, without its directory, leads to."""
    if name == b"metadata":
        return _LOGS
    return _SHARED_FILES if _version(name) is not None else None


def _version(name: bytes) -> int | None:
    """Return the version of the state that a snapshot of this name has; None: it is no snapshot."""
    if not name.endswith(b".zip"):  # every open asks, and nearly all are of other names
        return None
    entry = parse_spark(_ANY_STORE + name)
    if not isinstance(entry, SparkName) or entry.kind is not SparkKind.ZIP or entry.layers:
        return None
    return entry.number


def _end_bytes(size_bytes: int) -> int:
    return size_bytes // _END_PART + _LEAST_END_BYTES


def _names(file: BinaryIO, size_bytes: int) -> list[bytes]:
    snapshot = read_spark_snapshot(file, size_bytes)
    return [each.name for each in snapshot.files] if isinstance(snapshot, SparkSnapshot) else []


_SHARED_FILES = FetchReferences(_names, _end_bytes)
_LOGS = ListDirectories(
    (b"offsets", b"commits", b"sources/0", b"state", b"state/0/_metadata"),
    evidence=b"offsets",
    in_turn=re.compile(rb"(state/[0-9]+/)[0-9]{1,9}"),
    state=b"state",
    version=_version,
)
