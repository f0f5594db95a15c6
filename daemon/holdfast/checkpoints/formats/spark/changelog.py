"""Reads the head of a changelog of Spark's RocksDB provider: its version and its lineage.

Inside the codec: versions 2, 3 and 4 begin with the text ``vN``, version 1 with the first record; 3 and 4 go on with a JSON
list of the state versions, each with its unique id, from the snapshot they start from to the one before this changelog's.
What follows, the records, is not read. Source: S ``StateStoreChangelogWriter``, ``StateStoreChangelogReaderFactory`` (4.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from holdfast.checkpoints.formats.spark import lz4_blocks
from holdfast.checkpoints.manifests import BrokenError, Manifest, Readable, Trouble, Unreadable, decoder

_LONGEST_TEXT_BYTES = 2**16
"""The limit of a text that DataOutput.writeUTF writes: its length takes two bytes."""
_WANTED_BYTES = 2 + len("v4") + 2 + _LONGEST_TEXT_BYTES
_HEAD_BYTES = 512 * 1024
"""The part of the file that is read. LZ4 makes its input larger by a header and at most 0.4 %."""
_WITH_LINEAGE = (3, 4)
_NEWEST = 4
_VERSION = re.compile(rb"v([0-9]{1,4})")
_OTHER_CODECS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x82SNAPPY\x00": "snappy", b"ZV": "lzf"}
"""The other values of ``spark.sql.streaming.stateStore.compression.codec``, by the first bytes of their streams."""


@dataclass(frozen=True, slots=True)
class LineageItem:
    """A state version and the unique id of the attempt that wrote it."""

    version: int
    unique_id: bytes


@dataclass(frozen=True, slots=True)
class SparkChangelog(Manifest):
    """The head of a changelog. ``lineage`` is None below version 3, which has none."""

    version: int
    lineage: tuple[LineageItem, ...] | None


class _Item(msgspec.Struct, frozen=True):
    version: int
    unique_id: str = msgspec.field(name="checkpointUniqueId")


_decode_lineage = decoder(list[_Item], "a changelog's lineage")


def read_spark_changelog(stream: Readable, size_bytes: int) -> SparkChangelog | Unreadable:
    """Read the head of a changelog of ``size_bytes``. Raises only the stream's ``OSError``."""
    try:
        return _parse(_uncompressed(stream.read(min(size_bytes, _HEAD_BYTES))))
    except BrokenError as broken:
        return broken.result


def _uncompressed(compressed: bytes) -> bytes:
    if compressed.startswith(lz4_blocks.MAGIC):
        return lz4_blocks.head(compressed, _WANTED_BYTES)
    for magic, codec in _OTHER_CODECS.items():
        if compressed.startswith(magic):
            raise BrokenError(Trouble.UNKNOWN_CODEC, f"a changelog compressed by {codec}; only lz4 can be read")
    if len(compressed) < len(lz4_blocks.MAGIC):
        raise BrokenError(Trouble.TRUNCATED, f"a changelog of {len(compressed)} bytes")
    raise BrokenError(Trouble.FOREIGN, f"a changelog that begins with {compressed[:8].hex()}")


def _parse(text: bytes) -> SparkChangelog:
    first, rest = _text(text)
    match = _VERSION.fullmatch(first) if first is not None else None
    if match is None:
        return SparkChangelog(1, None)  # as Spark itself concludes
    version = int(match[1])
    if not 1 <= version <= _NEWEST:
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{version} of a changelog; up to {_NEWEST} can be read")
    if version not in _WITH_LINEAGE:
        return SparkChangelog(version, None)
    lineage, _ = _text(rest)
    if lineage is None:
        raise BrokenError(Trouble.TRUNCATED, "a changelog whose lineage is cut")
    items = _decode_lineage(lineage)
    return SparkChangelog(version, tuple(LineageItem(item.version, item.unique_id.encode()) for item in items))


def _text(text: bytes) -> tuple[bytes | None, bytes]:
    """Split off a Java text; None when it is not whole."""
    length = int.from_bytes(text[:2], "big")
    if len(text) < 2 + length:
        return None, b""
    return text[2 : 2 + length], text[2 + length :]
