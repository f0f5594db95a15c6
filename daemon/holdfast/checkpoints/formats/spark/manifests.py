"""The kinds of manifests that Spark writes, each with its reader."""

from __future__ import annotations

from holdfast.checkpoints.formats.spark.batch_log import read_spark_commit, read_spark_offsets
from holdfast.checkpoints.formats.spark.changelog import read_spark_changelog
from holdfast.checkpoints.formats.spark.compressed_end import read_state_file, read_whole_changelog
from holdfast.checkpoints.formats.spark.small_files import (
    read_operator_metadata,
    read_query_metadata,
    read_source_log,
    read_spark_checksum,
    read_state_schema,
)
from holdfast.checkpoints.formats.spark.snapshot import read_spark_snapshot
from holdfast.checkpoints.manifests import ManifestKind

SNAPSHOT = ManifestKind("snapshot", read_spark_snapshot)
CHANGELOG = ManifestKind("changelog", read_spark_changelog)
COMMIT = ManifestKind("commit", read_spark_commit)
OFFSETS = ManifestKind("offsets", read_spark_offsets)
QUERY_METADATA = ManifestKind("query metadata", read_query_metadata)
SOURCE_LOG = ManifestKind("source log", read_source_log)
OPERATOR_METADATA = ManifestKind("operator metadata", read_operator_metadata)
STATE_SCHEMA = ManifestKind("state schema", read_state_schema)
CHECKSUM = ManifestKind("checksum", read_spark_checksum)
WHOLE_CHANGELOG = ManifestKind("whole changelog", read_whole_changelog)
"""The same as ``CHANGELOG``, but a changelog that lacks its end is unreadable."""
STATE_FILE = ManifestKind("state file", read_state_file)
"""A delta or snapshot of the HDFS-backed provider."""
