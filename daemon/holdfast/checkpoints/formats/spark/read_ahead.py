"""The files and directories that Spark reads next after it has opened a file.

A RocksDB snapshot names SSTs, which Spark asks for one at a time; fetched together they take as long as the largest. A query
begins by opening its checkpoint's ``metadata``, and then lists one log after the other, within a second or two. Its tasks
list their partitions, as many at once as the executor has cores, in the order of their numbers.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from holdfast.checkpoints.formats.interface import FetchReferences, ListDirectories, ReadAhead
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot, read_spark_snapshot

_ANY_STORE = b"state/0/0/"


def read_ahead(name: bytes) -> ReadAhead | None:
    """Return what an open of a file of this name, without its directory, leads to."""
    if name == b"metadata":
        return _LOGS
    if not name.endswith(b".zip"):  # every open asks, and nearly all are of other names
        return None
    entry = parse_spark(_ANY_STORE + name)
    is_snapshot = isinstance(entry, SparkName) and entry.kind is SparkKind.ZIP and not entry.layers
    return _SHARED_FILES if is_snapshot else None


def _names(file: BinaryIO, size_bytes: int) -> list[bytes]:
    snapshot = read_spark_snapshot(file, size_bytes)
    return [each.name for each in snapshot.files] if isinstance(snapshot, SparkSnapshot) else []


_SHARED_FILES = FetchReferences(_names)
_LOGS = ListDirectories(
    (b"offsets", b"commits", b"sources/0", b"state", b"state/0/_metadata"),
    evidence=b"offsets",
    in_turn=re.compile(rb"(state/[0-9]+/)[0-9]{1,9}"),
)
