"""Writes what Spark's state stores and logs consist of: snapshots, changelogs, commits."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence


def snapshot(ssts: Sequence[str] = (), logs: Sequence[str] = (), head: str = "v1\n") -> bytes:
    metadata: dict[str, object] = {
        "sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": name, "sizeBytes": 7} for name in ssts],
        "numKeys": 3,
    }
    if logs:
        metadata["logFiles"] = [{"localFileName": "1.log", "dfsLogFileName": name, "sizeBytes": 7} for name in logs]
    return zipped({"CURRENT": b"MANIFEST-000001\n", "metadata": (head + json.dumps(metadata)).encode()})


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def lz4_block(stored: bytes, length: int, method: int = 0x10) -> bytes:
    return struct.pack("<8sBiii", b"LZ4Block", method | 0x05, len(stored), length, 0) + stored


LZ4_END = lz4_block(b"", 0)


def changelog(lineage: Sequence[tuple[int, str]] | None = None, version: int = 3, records: bytes = b"\xff" * 4) -> bytes:
    text = b"" if version == 1 else java_text(f"v{version}")
    if lineage is not None:
        items = [{"version": number, "checkpointUniqueId": unique_id} for number, unique_id in lineage]
        text += java_text(json.dumps(items, separators=(",", ":")))
    data = text + records
    blocks = [data[at : at + 2**15] for at in range(0, len(data), 2**15)]
    return b"".join(lz4_block(block, len(block)) for block in blocks) + LZ4_END


def java_text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def commit(unique_ids: Mapping[int, Sequence[Sequence[str]]] | None = None) -> bytes:
    if unique_ids is None:
        return b'v1\n{"nextBatchWatermarkMs":0}'
    ids = {str(operator): [list(stores) for stores in partitions] for operator, partitions in unique_ids.items()}
    return b"v2\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids}).encode()
