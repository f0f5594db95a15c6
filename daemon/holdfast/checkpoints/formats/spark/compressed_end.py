"""Tells whether a compressed state file has its end: a changelog, a delta, a snapshot of the HDFS-backed provider.

LZ4's stream of blocks, which is Spark's default, ends with a block of nothing. Streams of other codecs do not tell by
themselves: of these only the checksum beside them does, or their digest.
"""

from __future__ import annotations

from typing import BinaryIO

from holdfast.checkpoints.formats.spark import lz4_blocks
from holdfast.checkpoints.formats.spark.changelog import read_spark_changelog
from holdfast.checkpoints.formats.spark.small_files import WholeFile
from holdfast.checkpoints.manifests import Manifest, Trouble, Unreadable

_BLOCK_HEAD_BYTES = len(lz4_blocks.MAGIC) + 1 + 4 + 4 + 4
"""The size of a block's head: magic, token, compressed length, length, checksum."""


def read_state_file(stream: BinaryIO, size_bytes: int) -> Manifest:
    """Look at both ends of a state file of ``size_bytes``. Raises only the stream's ``OSError``."""
    begins = stream.read(len(lz4_blocks.MAGIC))
    if not begins:
        return Unreadable(Trouble.TRUNCATED, "a state file of 0 bytes")
    return _end_of(stream, size_bytes) if begins == lz4_blocks.MAGIC else WholeFile()


def read_whole_changelog(stream: BinaryIO, size_bytes: int) -> Manifest:
    """Read the head of a changelog, and look whether it has its end. Raises only the stream's ``OSError``."""
    ended = read_state_file(stream, size_bytes)
    if isinstance(ended, Unreadable):
        return ended
    stream.seek(0)
    return read_spark_changelog(stream, size_bytes)


def _end_of(stream: BinaryIO, size_bytes: int) -> Manifest:
    stream.seek(max(0, size_bytes - _BLOCK_HEAD_BYTES))
    end = stream.read(_BLOCK_HEAD_BYTES)
    if not end.startswith(lz4_blocks.MAGIC) or any(end[len(lz4_blocks.MAGIC) + 1 :]):
        return Unreadable(Trouble.TRUNCATED, f"a compressed file of {size_bytes} bytes that lacks its end")
    return WholeFile()
