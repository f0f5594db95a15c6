"""The beginning of a stream in the block format of lz4-java (``LZ4BlockOutputStream``), which Spark compresses state with.

Each block: ``LZ4Block``, a byte with method and size class, compressed length, length and checksum (little-endian), and
the data. Only heads are needed here, some hundred bytes of lineage; so this is the decoder alone, in plain Python (2 MB/s),
not a dependency on a binary package. The checksum (a seeded xxHash32) is not looked at: what the head says is compared with
the names that are there. Sources: lz4-java's LZ4BlockOutputStream; the LZ4 block format's description.
"""

from __future__ import annotations

import struct

from holdfast.checkpoints.manifests import BrokenError, Trouble

MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBii4x")
_STORED, _COMPRESSED = 0x10, 0x20
_SMALLEST_SIZE_CLASS_BITS = 10
_SHORTEST_MATCH_BYTES = 4
_ALL = 15
"""The value of a length in a token which says that the length goes on in the next bytes."""


def head(compressed: bytes, wanted_bytes: int) -> bytes:
    """Return the first ``wanted_bytes`` of what was compressed, or all of it, from a beginning of the compressed stream.

    Raises ``BrokenError``, also when there is not enough of the stream.
    """
    result = bytearray()
    at = 0
    while len(result) < wanted_bytes:
        if len(compressed) - at < _HEADER.size:
            raise BrokenError(Trouble.TRUNCATED, f"an LZ4 stream of {len(compressed)} bytes")
        magic, token, stored_bytes, length_bytes = _HEADER.unpack_from(compressed, at)
        if magic != MAGIC or stored_bytes < 0 or not 0 <= length_bytes <= 1 << (token & 0x0F) + _SMALLEST_SIZE_CLASS_BITS:
            raise BrokenError(Trouble.MALFORMED, f"no LZ4 block at byte {at}")
        if not length_bytes:
            break
        at += _HEADER.size
        block = compressed[at : at + stored_bytes]
        wanted_of_block_bytes = min(wanted_bytes - len(result), length_bytes)
        if token & 0xF0 == _STORED:
            result += block[:wanted_of_block_bytes]
        elif token & 0xF0 == _COMPRESSED:
            result += _decompressed(block, wanted_of_block_bytes)
        else:
            raise BrokenError(Trouble.UNKNOWN_CODEC, f"method {token & 0xF0:#x} in an LZ4 block")
        at += stored_bytes
    return bytes(result)


def _decompressed(block: bytes, wanted_bytes: int) -> bytes:
    """Decode the beginning of a block: literals and matches in turn."""
    result = bytearray()
    at = 0
    try:
        while len(result) < wanted_bytes:
            token = block[at]
            literals, at = _length(block, at + 1, token >> 4)
            result += block[at : at + literals]
            at += literals
            if len(result) >= wanted_bytes:  # always true at the end of a whole block, which literals end
                break
            distance = block[at] | block[at + 1] << 8
            match, at = _length(block, at + 2, token & 0x0F)
            _repeat(result, distance, min(match + _SHORTEST_MATCH_BYTES, wanted_bytes - len(result)))
    except IndexError:
        raise BrokenError(Trouble.TRUNCATED, f"an LZ4 block of {len(block)} bytes") from None
    return bytes(result[:wanted_bytes])


def _length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == _ALL:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 0xFF:
                break
    return length, at


def _repeat(result: bytearray, distance: int, length: int) -> None:
    """Append ``length`` bytes that stand ``distance`` before the end; they may overlap what they make."""
    start = len(result) - distance
    if distance == 0 or start < 0:
        raise BrokenError(Trouble.MALFORMED, "an LZ4 match outside its block")
    pattern = result[start : start + length]
    result += (pattern * (length // len(pattern) + 1))[:length]
