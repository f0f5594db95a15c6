"""Names that list others: opening one of them says which files will be asked for next.

Spark's ``N.zip`` (a RocksDB snapshot) holds a member ``metadata``: a line ``v1``, then JSON with ``sstFiles`` and
``logFiles`` (S ``RocksDBCheckpointMetadata``). The files it names stand in ``SSTs/`` and ``logs/`` beside it.
"""

from __future__ import annotations

import re
import zipfile

import msgspec

_SNAPSHOT = re.compile(rb"\d+(?:_[0-9a-f-]+)?\.zip")
_LARGEST_METADATA_BYTES = 64 * 2**20


class _File(msgspec.Struct, frozen=True):
    """One entry of ``sstFiles`` or ``logFiles``; which of the names is there tells which list it is from."""

    dfs_sst: str = msgspec.field(default="", name="dfsSstFileName")
    dfs_log: str = msgspec.field(default="", name="dfsLogFileName")


class _Metadata(msgspec.Struct, frozen=True):
    sst_files: list[_File] = msgspec.field(name="sstFiles", default_factory=list)
    log_files: list[_File] = msgspec.field(name="logFiles", default_factory=list)


def is_manifest(name: bytes) -> bool:
    """Say whether a file of this name may list others."""
    return _SNAPSHOT.fullmatch(name) is not None


def references(fd: int) -> list[bytes]:
    """Return the paths, relative to the directory of the manifest behind ``fd``, that it names; close ``fd``.

    Nothing when it is not one, is damaged, or is of a version that this Holdfast does not know: it is only a hint.
    """
    try:
        with open(fd, "rb") as file, zipfile.ZipFile(file) as archive:
            info = archive.getinfo("metadata")
            if info.file_size > _LARGEST_METADATA_BYTES:
                return []
            version, _, text = archive.read(info).partition(b"\n")
        if version.strip() != b"v1":
            return []
        metadata = msgspec.json.decode(text, type=_Metadata)
    except (zipfile.BadZipFile, KeyError, OSError, RuntimeError, NotImplementedError, EOFError, msgspec.DecodeError):
        return []
    names = [f"SSTs/{entry.dfs_sst}" for entry in metadata.sst_files if _is_plain(entry.dfs_sst)]
    names += [f"logs/{entry.dfs_log}" for entry in metadata.log_files if _is_plain(entry.dfs_log)]
    return [name.encode() for name in names]


def _is_plain(name: str) -> bool:
    return bool(name) and "/" not in name and name not in (".", "..")
