"""The kinds of manifests that Spark writes, each with its reader."""

from __future__ import annotations

from holdfast.checkpoints.formats.spark.batch_log import read_spark_commit, read_spark_offsets
from holdfast.checkpoints.formats.spark.changelog import read_spark_changelog
from holdfast.checkpoints.formats.spark.snapshot import read_spark_snapshot
from holdfast.checkpoints.manifests import ManifestKind

SNAPSHOT = ManifestKind("snapshot", read_spark_snapshot)
CHANGELOG = ManifestKind("changelog", read_spark_changelog)
COMMIT = ManifestKind("commit", read_spark_commit)
OFFSETS = ManifestKind("offsets", read_spark_offsets)
