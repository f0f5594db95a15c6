"""Reads ``N.zip`` and ``N_<uuid>.zip``: which SSTs and logs a snapshot of Spark's RocksDB provider consists of.

The member ``metadata`` is a line ``v1``, then JSON with ``sstFiles`` and ``logFiles``; the files that it names stand in
``SSTs/`` and ``logs/`` beside the zip. Both checkpoint formats have it so. Spark 4.0 writes ``v2``, with the same JSON, in a
JVM whose first state store had format 2, and reads nothing else there. Source: S ``RocksDBCheckpointMetadata``,
``RocksDBFileManager.dfsFilePath`` (Spark 3.5 to 4.3).
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO, cast

import msgspec

from holdfast.checkpoints.manifests import BrokenError, Manifest, Trouble, Unreadable, decoder

_MEMBER = "metadata"
_VERSIONS = {b"v1": 1, b"v2": 2}
_LARGEST_BYTES = 256 * 2**20
_LARGEST_METADATA_BYTES = 4 * 2**20
"""The size limit of the member ``metadata``: 36,000 SSTs, while a partition with a terabyte of state has 16,000. In memory
it is ten times as much."""
_LARGEST_DIRECTORY_BYTES = 2**20
"""The size limit of a zip's directory. zipfile makes an object of half a kilobyte of each entry, which has at least 46
bytes. Spark zips ten files."""
_LONGEST_NAME_BYTES = 255
"""NAME_MAX of Linux. A longer one is no file's, and asking for it is an error of its own."""
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_SIGNATURE = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES = 20
"""It stands before the end, and makes zipfile look for a directory elsewhere."""
_LONGEST_COMMENT_BYTES = 2**16
_TAIL_BYTES = _ZIP64_LOCATOR_BYTES + _END.size + _LONGEST_COMMENT_BYTES


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that several snapshots may share: its name relative to the zip's directory, and its size."""

    name: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SparkSnapshot(Manifest):
    """The files of a snapshot beside those in the zip itself, and the version of its metadata: 1 or 2."""

    files: tuple[SharedFile, ...]
    version: int = 1


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
    line, _, text = _member(_Within(stream, size_bytes)).partition(b"\n")
    version = _VERSIONS.get(line.rstrip(b"\r"))
    if version is None:
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{line[:20]!r} in a snapshot's metadata; v1 and v2 can be read")
    metadata = _decode_metadata(text)
    named: list[tuple[str, _SstFile | _LogFile]] = [("SSTs", file) for file in metadata.sst_files]
    named += [("logs", file) for file in metadata.log_files or ()]
    return SparkSnapshot(tuple(SharedFile(_path(where, file.name), file.size_bytes) for where, file in named), version)


def _path(directory: str, name: str) -> bytes:
    path = f"{directory}/{name}".encode()
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(path) > _LONGEST_NAME_BYTES:
        raise BrokenError(Trouble.MALFORMED, f"a snapshot names {name[:80]!r}")
    return path


def _check_directory(stream: BinaryIO, size_bytes: int) -> None:
    """Look at the end of the zip for how large its directory is, before zipfile reads all of that into memory."""
    if size_bytes > _LARGEST_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"a snapshot of {size_bytes} bytes")
    stream.seek(max(0, size_bytes - _TAIL_BYTES))
    tail = stream.read(_TAIL_BYTES)
    at = tail.rfind(_END_SIGNATURE)
    if at < 0 or len(tail) - at < _END.size:
        raise BrokenError(Trouble.TRUNCATED, "the directory of the zip is not there")
    directory_bytes = _END.unpack_from(tail, at)[5]
    if directory_bytes > _LARGEST_DIRECTORY_BYTES or _ZIP64_SIGNATURE in tail:
        raise BrokenError(Trouble.TOO_LARGE, f"a zip with a directory of {directory_bytes} bytes")


class _Within:
    """The part of a binary stream that zipfile needs. A zip that points outside of itself is ``ValueError``.

    A file would answer with ``OSError``, which is the store's, or with ``OverflowError``.
    """

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self._position = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if not 0 <= base + offset <= self._size_bytes:
            raise ValueError("it points outside of itself")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        left_bytes = self._size_bytes - self._position
        self._stream.seek(self._position)
        data = self._stream.read(left_bytes if size < 0 else min(size, left_bytes))
        self._position += len(data)
        return data


def _member(stream: _Within) -> bytes:
    try:
        with zipfile.ZipFile(cast(BinaryIO, stream)) as archive:
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
