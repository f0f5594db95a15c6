"""Which reader a manifest is for: the one way in for who has a name, a stream and a length."""

from __future__ import annotations

import enum
from typing import BinaryIO, TypeAlias

from holdfast.checkpoints.manifests.flink_metadata import FlinkMetadata, read_flink_metadata
from holdfast.checkpoints.manifests.own_metadata import FIRST_BYTE, OwnMetadata, read_own_metadata
from holdfast.checkpoints.manifests.results import Readable, Unreadable
from holdfast.checkpoints.manifests.spark_changelog import SparkChangelog, read_spark_changelog
from holdfast.checkpoints.manifests.spark_log import SparkCommit, SparkOffsets, read_spark_commit, read_spark_offsets
from holdfast.checkpoints.manifests.spark_snapshot import SparkSnapshot, read_spark_snapshot

CheckpointMetadata: TypeAlias = FlinkMetadata | OwnMetadata
Manifest: TypeAlias = CheckpointMetadata | SparkSnapshot | SparkChangelog | SparkCommit | SparkOffsets | Unreadable


class ManifestKind(enum.Enum):
    """What a manifest is, by its name."""

    CHECKPOINT = "checkpoint metadata"
    """A ``_metadata``, Flink's or Holdfast's: its first byte tells."""
    SPARK_SNAPSHOT = "snapshot"
    SPARK_CHANGELOG = "changelog"
    SPARK_COMMIT = "commit"
    SPARK_OFFSETS = "offsets"


def read_manifest(kind: ManifestKind, stream: BinaryIO, size_bytes: int) -> Manifest:
    """Read a manifest. Raises only the stream's ``OSError``; a snapshot's stream must be seekable."""
    match kind:
        case ManifestKind.CHECKPOINT:
            first = stream.read(1)
            read = read_own_metadata if first == FIRST_BYTE else read_flink_metadata
            return read(_Rejoined(first, stream), size_bytes)
        case ManifestKind.SPARK_SNAPSHOT:
            return read_spark_snapshot(stream, size_bytes)
        case ManifestKind.SPARK_CHANGELOG:
            return read_spark_changelog(stream, size_bytes)
        case ManifestKind.SPARK_COMMIT:
            return read_spark_commit(stream, size_bytes)
        case ManifestKind.SPARK_OFFSETS:
            return read_spark_offsets(stream, size_bytes)


class _Rejoined:
    """A stream whose first bytes were looked at."""

    def __init__(self, first: bytes, rest: Readable) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        first, self._first = self._first[:size], self._first[size:]
        return first + self._rest.read(size - len(first))
