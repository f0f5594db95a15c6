"""The names below a checkpoint location of Spark's Structured Streaming, and what each is.

A grammar: names in, typed entries out; what it does not know is ``Unknown``, never an error. Names are bytes, relative to
the checkpoint location, with ``/`` between their components. Sources: S ``HDFSMetadataLog``, ``CheckpointFileManager``,
``RocksDBFileManager``, ``HDFSBackedStateStoreProvider``, ``OperatorStateMetadata``, ``StateSchemaV3File`` (Spark 4.3; the
layout is the same since 3.5, but for what checkpoint format 2 added in 4.0).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from holdfast.checkpoints.formats.interface import UUID, Unknown
from holdfast.checkpoints.formats.spark.wrapping import Layer, unwrapped

DEFAULT_STORE = b"default"
"""The store that has no directory of its own below its partition (S ``StateStoreId.DEFAULT_STORE_NAME``)."""


class SparkKind(enum.Enum):
    """The kind of file that a name stands for."""

    QUERY_METADATA = "query metadata"
    OFFSETS = "offsets"
    COMMIT = "commit"
    SOURCE_LOG = "source log"
    SINK_LOG = "sink log"
    OPERATOR_METADATA = "operator metadata"
    STATE_SCHEMA = "state schema"
    ZIP = "zip"
    """The zip of a RocksDB snapshot, which is the snapshot's manifest; the SSTs themselves are shared."""
    CHANGELOG = "changelog"
    SNAPSHOT = "snapshot"
    """A snapshot of the HDFS-backed provider: a whole state."""
    DELTA = "delta"
    SST = "sst"
    ARCHIVED_LOG = "archived log"


STATE_OF_A_VERSION = frozenset({SparkKind.ZIP, SparkKind.CHANGELOG, SparkKind.SNAPSHOT, SparkKind.DELTA})
"""The kinds of files that have the number of a state version in their names."""


@dataclass(frozen=True, slots=True)
class StoreId:
    """One state store, by its operator, its partition, and its name: a join, for one, has several in each partition."""

    operator: int
    partition: int
    store: bytes = DEFAULT_STORE


@dataclass(frozen=True, slots=True)
class SparkName:
    """A parsed name: its kind, its batch or state version (``number``), its store, and its unique id.

    ``layers`` is empty for the file itself; else the file is temporary or a checksum, and ``owner`` is the whole name of the
    file that it belongs to.
    """

    name: bytes
    kind: SparkKind
    number: int | None = None
    store: StoreId | None = None
    unique_id: bytes | None = None
    source: bytes | None = None
    is_compacted: bool = False
    layers: tuple[Layer, ...] = ()
    owner: bytes = b""

    @property
    def is_temporary(self) -> bool:
        """True for a temporary file, which will be renamed, and for the checksum of one."""
        return Layer.TEMPORARY in self.layers

    @property
    def is_format_2(self) -> bool:
        """True for a state file of checkpoint format 2: its name tells which attempt wrote it."""
        return self.kind in STATE_OF_A_VERSION and self.unique_id is not None


_NUMBER = rb"(?:0|[1-9][0-9]{0,18})"  # as Java prints a long
_STORE = rb"state/(?P<operator>%s)/(?P<partition>%s)(?:/(?P<store>(?!(?:SSTs|logs|_metadata)/)[^/]+))?" % (_NUMBER, _NUMBER)
_OF_A_VERSION = {
    b"zip": SparkKind.ZIP,
    b"changelog": SparkKind.CHANGELOG,
    b"snapshot": SparkKind.SNAPSHOT,
    b"delta": SparkKind.DELTA,
}
_STATE = [
    (None, rb"%s/(?P<number>%s)(?:_(?P<unique_id>%s))?\.(?P<ending>zip|changelog|snapshot|delta)" % (_STORE, _NUMBER, UUID)),
    (SparkKind.SST, rb"%s/SSTs/[^/]+-(?P<unique_id>%s)\.sst" % (_STORE, UUID)),
    (SparkKind.ARCHIVED_LOG, rb"%s/logs/[^/]+-(?P<unique_id>%s)\.log" % (_STORE, UUID)),
    (SparkKind.STATE_SCHEMA, rb"%s/_metadata/schema" % _STORE),
    (SparkKind.STATE_SCHEMA, rb"state/%s/_stateSchema/[^/]+/(?P<number>%s)_(?P<unique_id>%s)" % (_NUMBER, _NUMBER, UUID)),
    (SparkKind.OPERATOR_METADATA, rb"state/%s/_metadata/(?:metadata|v2/(?P<number>%s))" % (_NUMBER, _NUMBER)),
]
_LOGS = [
    (SparkKind.QUERY_METADATA, rb"metadata"),
    (SparkKind.OFFSETS, rb"offsets/(?P<number>%s)" % _NUMBER),
    (SparkKind.COMMIT, rb"commits/(?P<number>%s)" % _NUMBER),
    (SparkKind.SOURCE_LOG, rb"sources/(?P<source>[^/]+)/(?P<number>%s)(?P<compacted>\.compact)?" % _NUMBER),
    (SparkKind.SINK_LOG, rb"(?:.+/)?_spark_metadata/(?P<number>%s)(?P<compacted>\.compact)?" % _NUMBER),
]
_Rules = list[tuple[SparkKind | None, re.Pattern[bytes]]]
_STATE_RULES: _Rules = [(kind, re.compile(pattern, re.DOTALL)) for kind, pattern in _STATE]
_LOG_RULES: _Rules = [(kind, re.compile(pattern, re.DOTALL)) for kind, pattern in _LOGS]


def parse_spark(name: bytes) -> SparkName | Unknown:
    """Say what ``name``, relative to a checkpoint location, is."""
    directory, slash, last = name.rpartition(b"/")
    wrapped = unwrapped(last)
    core = directory + slash + wrapped.core
    for kind, regex in _STATE_RULES if core.startswith(b"state/") else _LOG_RULES:
        match = regex.fullmatch(core)
        if match is not None:
            found = match.groupdict()
            number = found.get("number")
            return SparkName(
                name,
                kind or _OF_A_VERSION[found["ending"]],
                None if number is None else int(number),
                _store_id(found),
                found.get("unique_id"),
                found.get("source"),
                is_compacted=found.get("compacted") is not None,
                layers=wrapped.layers,
                owner=directory + slash + wrapped.owner,
            )
    return Unknown(name)


def _store_id(found: dict[str, bytes | None]) -> StoreId | None:
    operator, partition = found.get("operator"), found.get("partition")
    if operator is None or partition is None:
        return None
    return StoreId(int(operator), int(partition), found.get("store") or DEFAULT_STORE)
