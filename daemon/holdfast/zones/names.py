"""Kinds of names among objects, from what Spark and Flink do with them.

A pattern is a path below the zone. In a component ``*`` stands for any characters, ``<n>`` for a number, ``<hex>`` for
hexadecimal digits, ``<uuid>`` for a UUID; the component ``**`` stands for any directories, or at the end for everything
below. The first kind that fits counts, in the order of ``NameKind``; what fits nothing is replaceable. Sources: Spark's
CheckpointFileManager, RocksDBFileManager, HDFSMetadataLog; Flink's FsCheckpointStorageAccess, BlobUtils; Hadoop's
ChecksumFileSystem.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from holdfast.errors import ConfigurationError
from holdfast.zones.kinds import NameKind

BUILT_IN: Mapping[NameKind, Sequence[str]] = {
    NameKind.TEMPORARY: ("**/*.tmp", "**/_temporary/**", "**/*.inprogress.*", "**/incoming/temp-<n>"),
    NameKind.SIDECAR: ("**/.*.crc",),
    NameKind.WRITE_ONCE: (
        "**/offsets/<n>",
        "**/commits/<n>",
        "**/sources/<n>/<n>",
        "**/sources/<n>/<n>.compact",
        "**/_spark_metadata/<n>",
        "**/_spark_metadata/<n>.compact",
        "**/metadata",
        "**/_metadata/**",
        "**/_stateSchema/**",
        "**/chk-<n>/_metadata",
        "**/savepoint-*/_metadata",
    ),
    NameKind.IMMUTABLE: (
        "**/SSTs/*-<uuid>.sst",
        "**/logs/*-<uuid>.log",
        "**/<n>_<uuid>.*",
        "**/shared/<uuid>",
        "**/taskowned/<uuid>",
        "**/chk-<n>/<uuid>",
        "**/savepoint-*/<uuid>",
        "**/blob_p-<hex>-<hex>",
        "**/blob_t-<hex>-<hex>",
    ),
}

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_WORDS = {"*": r"[^/]*", "<n>": r"[0-9]+", "<hex>": r"[0-9a-f]+", "<uuid>": _UUID}
_TOKENS = re.compile(r"\*|<[^<>]*>?|[^*<]+")
_LOG_OF_SPARK = re.compile(rb"(.+)/(?:offsets|commits|sources/[0-9]+)", re.DOTALL)
_TEMPORARY_OF_SPARK = re.compile(rb"\.(.+)\." + _UUID.encode() + rb"(?:\.TID\d+)?\.tmp", re.DOTALL)
_TEMPORARY_OF_FLINK = re.compile(rb"\.(.+)\.inprogress\..+", re.DOTALL)
_SIDECAR = re.compile(rb"\.(.+)\.crc", re.DOTALL)


class NameTable:
    """The patterns in force: the built-in ones and those of the configuration, which go first.

    Raises ``ConfigurationError`` for a pattern that can't be.
    """

    def __init__(self, added: Mapping[NameKind, Sequence[str]]) -> None:
        self._kinds: list[NameKind] = []
        groups = []
        for source in (added, BUILT_IN):
            for kind in NameKind:
                patterns = source.get(kind, ())
                if patterns:
                    self._kinds.append(kind)
                    groups.append("(" + "|".join(_to_regex(pattern) for pattern in patterns) + ")")
        self._regex = re.compile(os.fsencode("|".join(groups)))
        self.kind_of = lru_cache(maxsize=4096)(self._kind_of)

    def _kind_of(self, path: bytes) -> NameKind:
        """Return the kind of the name at ``path``, relative to its zone."""
        match = self._regex.fullmatch(path)
        if match is None or match.lastindex is None:
            return NameKind.REPLACEABLE
        return self._kinds[match.lastindex - 1]


def temporary_target(name: bytes) -> bytes | None:
    """Return the final name that a temporary file is made for, where its name tells (Spark, Flink); else None."""
    match = _TEMPORARY_OF_SPARK.fullmatch(name) or _TEMPORARY_OF_FLINK.fullmatch(name)
    return match[1] if match else None


def checkpoint_of_log(directory: bytes) -> bytes | None:
    """Return the checkpoint that a directory is a log of, whose write-once names one driver makes (Spark); else None."""
    match = _LOG_OF_SPARK.fullmatch(directory)
    return match[1] if match else None


def sidecar_owner(name: bytes) -> bytes | None:
    """Return the name of the file whose checksum ``name`` holds; None when it is no sidecar's name."""
    match = _SIDECAR.fullmatch(name)
    return match[1] if match else None


def sidecar_of(name: bytes) -> bytes:
    """Return the name of the checksum file of ``name``."""
    return b".%s.crc" % name


def _to_regex(pattern: str) -> str:
    *directories, last = pattern.split("/")
    parts = [r"(?:[^/]+/)*" if part == "**" else _component(part, pattern) + "/" for part in directories]
    parts.append(r"(?s:.+)" if last == "**" else _component(last, pattern))
    return "".join(parts)


def _component(part: str, pattern: str) -> str:
    if not part:
        raise ConfigurationError(f"names: {pattern!r}: a path below the zone, without slashes at its ends or in a row")
    if "**" in part:
        raise ConfigurationError(f"names: {pattern!r}: ** stands between slashes, alone")
    parts = []
    for token in _TOKENS.findall(part):
        if token.startswith("<") and token not in _WORDS:
            raise ConfigurationError(f"names: {pattern!r}: {token} is no word; there are {', '.join(_WORDS)}")
        parts.append(_WORDS.get(token) or re.escape(token))
    return "".join(parts)
