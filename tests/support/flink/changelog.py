"""Compressed files of Flink's changelog backend, in Snappy's framing format, and checkpoints that need one."""

from __future__ import annotations

from tests.support.flink import metadata as write

BEGIN = b"\x01\xff\x06\x00\x00sNaPpY"
CHECKSUM = b"\x00" * 4
FULL = b"\x80\x80\x04"  # 65,536
UUID = "0a1b2c3d-4e5f-6789-abcd-ef0123456789"


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + (len(CHECKSUM) + len(data)).to_bytes(3, "little") + CHECKSUM + data


LAST = chunk(0, b"\x05" + b"z" * 7)
WHOLE = BEGIN + chunk(0, FULL + b"x" * 3000) + chunk(1, b"y" * 200) + LAST
WHOLE_BYTES = 1 + 65_536 + 200 + 5


def job(stored: bytes, uuid: str = UUID) -> dict[str, bytes]:
    """Return the files of a job with one checkpoint, whose changelog has ``WHOLE_BYTES`` and is stored as told."""
    uri = f"file:/elsewhere/dstl/{uuid}".encode()
    handle = write.changelog([], [write.changelog_files([write.file(uri, WHOLE_BYTES - 1)])])
    metadata = write.metadata([write.operator([write.subtask(handle)])])
    return {"chk-1/_metadata": metadata, f"dstl/{uuid}": stored}
