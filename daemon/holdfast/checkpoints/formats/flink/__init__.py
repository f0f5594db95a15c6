"""Flink's checkpoints and savepoints, and the names in its blob store (Flink 2.3).

Sources: F ``FsCheckpointStorageAccess``, ``BlobUtils``, ``RecoverableWriter``.
"""

from __future__ import annotations

import re

from holdfast.checkpoints.formats.flink.changelog_file import CHANGELOG_FILE
from holdfast.checkpoints.formats.flink.metadata import MAGIC, FlinkMetadata, read_flink_metadata
from holdfast.checkpoints.formats.flink_layout import LAYOUT
from holdfast.checkpoints.formats.interface import Format
from holdfast.checkpoints.manifests import MetadataReader
from holdfast.zones import NameKind

FORMAT = Format(
    name="flink",
    name_kinds={
        NameKind.TEMPORARY: ("**/*.inprogress.*", "**/incoming/temp-<n>"),
        NameKind.WRITE_ONCE: ("**/chk-<n>/_metadata", "**/savepoint-*/_metadata"),
        NameKind.IMMUTABLE: (
            "**/shared/<uuid>",
            "**/taskowned/<uuid>",
            "**/chk-<n>/<uuid>",
            "**/savepoint-*/<uuid>",
            "**/blob_p-<hex>-<hex>",
            "**/blob_t-<hex>-<hex>",
        ),
    },
    temporary_names=(re.compile(rb"\.(.+)\.inprogress\..+", re.DOTALL),),
    tree=LAYOUT,
    metadata=MetadataReader(MAGIC, read_flink_metadata),
    compressed=CHANGELOG_FILE,
)

__all__ = ["FORMAT", "FlinkMetadata", "read_flink_metadata"]
