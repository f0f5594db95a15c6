"""What refers to what: readers of the files that list others. Bytes in, names out; no network, nothing raised, no trust."""

from holdfast.checkpoints.manifests.flink_metadata import FlinkMetadata, read_flink_metadata
from holdfast.checkpoints.manifests.flink_references import Reference, ReferenceKind
from holdfast.checkpoints.manifests.kinds import CheckpointMetadata, Manifest, ManifestKind, read_manifest
from holdfast.checkpoints.manifests.own_metadata import OwnFile, OwnMetadata, own_metadata, read_own_metadata
from holdfast.checkpoints.manifests.results import Readable, Trouble, Unreadable
from holdfast.checkpoints.manifests.spark_changelog import LineageItem, SparkChangelog, read_spark_changelog
from holdfast.checkpoints.manifests.spark_log import SparkCommit, SparkOffsets, read_spark_commit, read_spark_offsets
from holdfast.checkpoints.manifests.spark_snapshot import SharedFile, SparkSnapshot, read_spark_snapshot

__all__ = [
    "CheckpointMetadata",
    "FlinkMetadata",
    "LineageItem",
    "Manifest",
    "ManifestKind",
    "OwnFile",
    "OwnMetadata",
    "Readable",
    "Reference",
    "ReferenceKind",
    "SharedFile",
    "SparkChangelog",
    "SparkCommit",
    "SparkOffsets",
    "SparkSnapshot",
    "Trouble",
    "Unreadable",
    "own_metadata",
    "read_flink_metadata",
    "read_manifest",
    "read_own_metadata",
    "read_spark_changelog",
    "read_spark_commit",
    "read_spark_offsets",
    "read_spark_snapshot",
]
