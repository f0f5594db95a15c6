"""Holdfast's own checkpoints, of plain processes: in Flink's layout as FLINK-10930 has it, with metadata in JSON.

``writer`` is the program's side, ``holdfast.Job`` and ``holdfast.Checkpoint``: it works on files in the mount. Nothing that
makes plans imports it.
"""

from __future__ import annotations

import re

from holdfast.checkpoints.formats.flink_layout import LAYOUT
from holdfast.checkpoints.formats.interface import UUID, Format
from holdfast.checkpoints.formats.own.metadata import FIRST_BYTE, OwnFile, OwnMetadata, own_metadata, read_own_metadata
from holdfast.checkpoints.manifests import MetadataReader
from holdfast.zones import NameKind

_TEMPORARY_NAMES = (
    re.compile(rb"\.(.+)\.%s\.tmp" % UUID, re.DOTALL),
    re.compile(rb"\.(_metadata)\.inprogress\..+", re.DOTALL),
)

FORMAT = Format(
    name="own",
    name_kinds={
        NameKind.TEMPORARY: ("**/*.tmp", "**/*.inprogress.*"),
        NameKind.WRITE_ONCE: ("**/chk-<n>/_metadata",),
        NameKind.IMMUTABLE: ("**/shared/<uuid>", "**/taskowned/<uuid>"),
    },
    temporary_names=_TEMPORARY_NAMES,
    attempt_names=_TEMPORARY_NAMES,
    tree=LAYOUT,
    metadata=MetadataReader(FIRST_BYTE, read_own_metadata),
)

__all__ = ["FORMAT", "OwnFile", "OwnMetadata", "own_metadata", "read_own_metadata"]
