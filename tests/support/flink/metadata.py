"""Writes Flink's ``_metadata``: every handle that there is, also those that no Flink of today writes any more.

Flink 2.3's own reader was given what is made here, version 2 and all tags, and found the same references.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAGIC = 0x4960672D
MASTER_STATE_MAGIC = 0xC96B1696
NULL = b"\x00"
PROPERTIES = bytes.fromhex(  # an object of a class without fields, as Java would write it
    "aced0005" + "7372" + "0001" + b"P".hex() + "0000000000000002" + "02" + "0000" + "78" + "70"
)


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def counted(items: Sequence[bytes]) -> bytes:
    return int32(len(items)) + b"".join(items)


# --- stream handles ---------------------------------------------------------------------------------------------------


def inline(data: bytes, name: bytes = b"file:/looks/like/a/path") -> bytes:
    return b"\x01" + text(name) + int32(len(data)) + data


def file(uri: bytes, size: int = 7) -> bytes:
    return b"\x02" + int64(size) + text(uri)


def relative(name: bytes, size: int = 7) -> bytes:
    return b"\x06" + text(name) + int64(size)


def segment(uri: bytes) -> bytes:
    return b"\x0f" + int64(3) + int64(4) + int32(1) + text(uri) + text(b"logical")


EMPTY_SEGMENT = b"\x10"


# --- keyed handles ----------------------------------------------------------------------------------------------------


def key_groups(stream: bytes, tag: int = 12) -> bytes:
    return bytes([tag]) + int32(0) + counted([int64(1), int64(2)]) + stream + (text(b"id") if tag == 12 else b"")


def incremental(
    meta: bytes, shared: Sequence[bytes] = (), private: Sequence[bytes] = (), tag: int = 11, checkpoint: int = 1
) -> bytes:
    head = int64(checkpoint) + text(b"0a1b2c3d-4e5f-6789-abcd-ef0123456789") + int32(0) + int32(2)
    lists = b"".join(counted([text(b"000007.sst") + handle for handle in handles]) for handles in (shared, private))
    if tag == 11:
        return b"\x0b" + head + int64(99) + meta + lists + text(b"id")
    return b"\x05" + head + meta + lists


def changelog(materialized: Sequence[bytes], others: Sequence[bytes], tag: int = 14) -> bytes:
    head = int32(0) + int32(2) + int64(99) + counted(materialized) + counted(others) + int64(5)
    return bytes([tag]) + head + (int64(6) if tag == 14 else b"") + text(b"id")


def changelog_inline(changes: Sequence[bytes]) -> bytes:
    return (
        b"\x09"
        + int32(0)
        + int32(2)
        + int64(0)
        + int64(9)
        + counted([int32(1) + int32(len(change)) + change for change in changes])
        + text(b"id")
    )


def changelog_files(streams: Sequence[bytes], tag: int = 13) -> bytes:
    body = int32(0) + int32(2) + counted([int64(0) + stream for stream in streams]) + int64(9) + int64(9) + text(b"id")
    return bytes([tag]) + body + (text(b"filesystem") if tag == 13 else b"")


# --- operator and channel handles -------------------------------------------------------------------------------------


def operator_state(stream: bytes, directories: tuple[bytes, bytes] | None = None) -> bytes:
    partitions = counted([text(b"split") + b"\x00" + counted([int64(1)]), text(b"union") + b"\x01" + counted([])])
    if directories is None:
        return b"\x04" + partitions + stream
    return b"\x11" + partitions + text(directories[0]) + text(directories[1]) + b"\x00" + stream


def channel(stream: bytes, kind: int | None = 1) -> bytes:
    head = b"" if kind is None else bytes([kind])
    if kind in (3, 4):
        return head + int32(0) + int64(9) + stream + int32(5) + b"bytes"
    return head + int32(0) + int32(0) + int32(0) + counted([int64(1)]) + int64(9) + stream


# --- the whole --------------------------------------------------------------------------------------------------------


def subtask(
    keyed: bytes = NULL,
    operator: bytes | None = None,
    inputs: Sequence[bytes] = (),
    results: Sequence[bytes] = (),
    version: int = 6,
) -> bytes:
    states = (int32(0) if operator is None else int32(1) + operator) + int32(0) + keyed + NULL
    if version == 2:
        return int64(-1) + int32(0) + states
    return states + counted(inputs) + counted(results)


def operator(subtasks: Sequence[bytes], coordinator: bytes = NULL, version: int = 6, finished: int = 0) -> bytes:
    names = text(b"name") + text(b"") if version >= 5 else b""
    middle = int32(1) if version == 2 else coordinator
    indexed = [int32(index) + state for index, state in enumerate(subtasks)]
    indexed += [int32(-(len(subtasks) + index + 1)) for index in range(finished)]
    return names + int64(1) + int64(2) + int32(len(indexed)) + int32(128) + middle + counted(indexed)


def finished_operator() -> bytes:
    return text(b"name") + text(b"uid") + int64(3) + int64(4) + int32(1) + int32(128) + NULL + int32(-1)


def metadata(operators: Sequence[bytes], checkpoint: int = 1, version: int = 6, masters: Sequence[bytes] = ()) -> bytes:
    states = [struct.pack(">I", MASTER_STATE_MAGIC) + int32(len(state)) + state for state in masters]
    body = int32(MAGIC) + int32(version) + int64(checkpoint) + counted(states) + counted(operators)
    return body + (PROPERTIES if version >= 4 else b"")


def with_files(uris: Sequence[bytes], checkpoint: int = 1, relatives: Sequence[bytes] = ()) -> bytes:
    """The metadata of an incremental checkpoint with these shared files, and these files of its own."""
    handle = incremental(inline(b"meta"), [file(uri) for uri in uris], [relative(name) for name in relatives])
    return metadata([operator([subtask(handle)])], checkpoint)
