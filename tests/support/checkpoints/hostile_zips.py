"""Zips that no zip program makes: with directories elsewhere, offsets that lead out, far more in them than they weigh."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

_MAXIMUM_32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Entry:
    """An entry of the directory. What is None is as it should be."""

    name: bytes = b"metadata"
    method: int = 8
    flags: int = 0
    offset: int | None = None
    stored_bytes: int | None = None
    length_bytes: int | None = None
    crc: int | None = None
    extra: bytes = b""


@dataclass(frozen=True)
class Zip:
    """A zip with one member, and any number of entries that speak of it."""

    content: bytes = b"v1\n{}"
    entries: tuple[Entry, ...] = field(default=(Entry(),))
    directory_bytes: int | None = None
    directory_offset: int | None = None
    count: int | None = None
    comment: bytes = b""
    is_64: bool = False

    def data(self) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        stored = packer.compress(self.content) + packer.flush()
        local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 8, 0, 0, zlib.crc32(self.content), len(stored), 0, 8, 0)
        body = local + b"metadata" + stored
        directory = b"".join(self._entry(entry, stored) for entry in self.entries)
        count = len(self.entries) if self.count is None else self.count
        size = len(directory) if self.directory_bytes is None else self.directory_bytes
        offset = len(body) if self.directory_offset is None else self.directory_offset
        whole = body + directory
        if self.is_64:
            end_64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), len(body))
            whole += end_64 + struct.pack("<4sLQL", b"PK\6\7", 0, len(whole), 1)
            size, offset, count = 46, _MAXIMUM_32, 0xFFFF
        counts = min(count, 0xFFFF)
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, counts, counts, size, offset, len(self.comment))
        return whole + end + self.comment

    def _entry(self, entry: Entry, stored: bytes) -> bytes:
        numbers = struct.pack(
            "<4s6H3L5H2L",
            b"PK\1\2",
            20,
            20,
            entry.flags,
            entry.method,
            0,
            0,
            zlib.crc32(self.content) if entry.crc is None else entry.crc,
            len(stored) if entry.stored_bytes is None else entry.stored_bytes,
            len(self.content) if entry.length_bytes is None else entry.length_bytes,
            len(entry.name),
            len(entry.extra),
            0,
            0,
            0,
            0,
            0 if entry.offset is None else entry.offset,
        )
        return numbers + entry.name + entry.extra


def offset_of_64_bits(offset: int) -> Entry:
    """An entry whose place is in an extra field of eight bytes."""
    return Entry(offset=_MAXIMUM_32, extra=struct.pack("<HHQ", 1, 8, offset))


def beyond_all() -> bytes:
    """A zip whose member stands at the end of 2**64 bytes."""
    return Zip(entries=(offset_of_64_bits(2**64 - 1),)).data()


def before_the_beginning() -> bytes:
    """A zip whose directory is larger than the zip: counted back from its end, everything stands before the beginning."""
    return Zip(directory_bytes=5000).data()


def hidden_directory(entries: int) -> bytes:
    """A zip whose end speaks of one entry, and whose other end, behind the longest comment, of many."""
    return Zip(entries=(Entry(b""),) * entries, comment=bytes(0xFFFF), is_64=True).data()


def snapshot_of(names: list[str]) -> bytes:
    """A snapshot that names these SSTs."""
    files = ",".join(f'{{"dfsSstFileName":"{name}","sizeBytes":1}}' for name in names)
    return Zip(b'v1\n{"sstFiles":[' + files.encode() + b"]}").data()
