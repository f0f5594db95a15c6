"""Reads ``N.zip`` and ``N_<uuid>.zip``: which SSTs and logs a snapshot of Spark's RocksDB provider consists of.

The member ``metadata`` is a line ``v1``, then JSON with ``sstFiles`` and ``logFiles``; the files that it names stand in
``SSTs/`` and ``logs/`` beside the zip. Both checkpoint formats have it so. Source: S ``RocksDBCheckpointMetadata``,
``RocksDBFileManager.dfsFilePath`` (Spark 4.3).
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from holdfast.checkpoints.manifests.json_text import decoder
from holdfast.checkpoints.manifests.results import BrokenError, Trouble, Unreadable

_MEMBER = "metadata"
_LARGEST_BYTES = 256 * 2**20
_LARGEST_METADATA_BYTES = 16 * 2**20
"""Some hundred thousand SSTs; a partition with a terabyte of state has 16,000."""
_LARGEST_DIRECTORY_BYTES = 2**20
"""zipfile makes an object of half a kilobyte of each entry, and an entry has 46 bytes at least. Spark zips ten files."""
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_SIGNATURE = b"PK\x06\x07"
_LONGEST_COMMENT_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that several snapshots may share: its name relative to the zip's directory, and its size."""

    name: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SparkSnapshot:
    """What a snapshot consists of, beside what is in the zip itself."""

    files: tuple[SharedFile, ...]


class _SstFile(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="dfsSstFileName")
    size_bytes: int = msgspec.field(name="sizeBytes")


class _LogFile(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="dfsLogFileName")
    size_bytes: int = msgspec.field(name="sizeBytes")


class _Metadata(msgspec.Struct, frozen=True):
    sst_files: list[_SstFile] = msgspec.field(name="sstFiles")
    log_files: list[_LogFile] | None = msgspec.field(name="logFiles", default=None)


_decode_metadata = decoder(_Metadata, "a snapshot's metadata")


def read_spark_snapshot(stream: BinaryIO, size_bytes: int) -> SparkSnapshot | Unreadable:
    """Read a zip of ``size_bytes`` from ``stream``, which must be seekable. Raises only the stream's ``OSError``."""
    try:
        return _read(stream, size_bytes)
    except BrokenError as broken:
        return broken.result


def _read(stream: BinaryIO, size_bytes: int) -> SparkSnapshot:
    _check_directory(stream, size_bytes)
    version, _, text = _member(stream).partition(b"\n")
    if version.rstrip(b"\r") != b"v1":
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{version[:20]!r} in a snapshot's metadata; v1 can be read")
    metadata = _decode_metadata(text)
    named: list[tuple[str, _SstFile | _LogFile]] = [("SSTs", file) for file in metadata.sst_files]
    named += [("logs", file) for file in metadata.log_files or ()]
    return SparkSnapshot(tuple(SharedFile(_path(where, file.name), file.size_bytes) for where, file in named))


def _path(directory: str, name: str) -> bytes:
    if "/" in name or name in ("", ".", ".."):
        raise BrokenError(Trouble.MALFORMED, f"a snapshot names {name[:80]!r}")
    return f"{directory}/{name}".encode()


def _check_directory(stream: BinaryIO, size_bytes: int) -> None:
    """Look at the end of the zip for how large its directory is, before zipfile reads all of that into memory."""
    if size_bytes > _LARGEST_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"a snapshot of {size_bytes} bytes")
    stream.seek(max(0, size_bytes - _END.size - _LONGEST_COMMENT_BYTES))
    tail = stream.read(_END.size + _LONGEST_COMMENT_BYTES)
    at = tail.rfind(_END_SIGNATURE)
    if at < 0 or len(tail) - at < _END.size:
        raise BrokenError(Trouble.TRUNCATED, "the directory of the zip is not there")
    directory_bytes = _END.unpack_from(tail, at)[5]
    if directory_bytes > _LARGEST_DIRECTORY_BYTES or _ZIP64_SIGNATURE in tail:
        raise BrokenError(Trouble.TOO_LARGE, f"a zip with a directory of {directory_bytes} bytes")


def _member(stream: BinaryIO) -> bytes:
    try:
        with zipfile.ZipFile(stream) as archive:
            info = archive.getinfo(_MEMBER)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise BrokenError(Trouble.UNKNOWN_CODEC, f"zip method {info.compress_type}")
            with archive.open(info) as member:
                text = member.read(_LARGEST_METADATA_BYTES + 1)
    except KeyError:
        raise BrokenError(Trouble.FOREIGN, f"a zip without {_MEMBER}") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError) as problem:
        raise BrokenError(Trouble.MALFORMED, f"a zip: {problem}") from None
    if len(text) > _LARGEST_METADATA_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"a snapshot's metadata of more than {_LARGEST_METADATA_BYTES} bytes")
    return text
