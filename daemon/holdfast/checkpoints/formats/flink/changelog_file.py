"""The uncompressed length of a file of the changelog backend, which is the length that metadata names.

A first byte tells whether the rest is compressed. If it is, it is a stream in Snappy's framing format: an identifier, then
chunks, each with its type, its length and a checksum. Every chunk says how long it is uncompressed, so that nothing has to
be decompressed. Sources: F ``OutputStreamWithPos``, ``ChangelogStreamWrapper`` (Flink 2.3); Snappy's
``framing_format.txt`` and ``format_description.txt``.
"""

from __future__ import annotations

from typing import BinaryIO

from holdfast.checkpoints.manifests import BrokenError, Manifest, ManifestKind, Trouble, WholeLength

_COMPRESSED_FILE = b"\x01"
_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _STORED = 0, 1
_HEAD_BYTES = 1 + 3
_CHECKSUM_BYTES = 4
_LONGEST_VARINT_BYTES = 3
"""The longest varint that is read, enough for the length of the longest chunk."""
_LONGEST_CHUNK_BYTES = 65_536
"""The largest uncompressed length of a chunk, according to the format's description."""
_MOST_CHUNKS = 2**18
"""The limit of chunks in one file: 16 GiB of changes, because Flink fills each chunk but the last."""


def read_changelog_file(stream: BinaryIO, size_bytes: int) -> Manifest:
    """Return the ``WholeLength`` of a file of ``size_bytes``. Raises only the stream's ``OSError``."""
    if stream.read(1) != _COMPRESSED_FILE:
        return WholeLength(size_bytes)
    try:
        return WholeLength(1 + _uncompressed_bytes(stream, size_bytes))
    except BrokenError as broken:
        return broken.result


def _uncompressed_bytes(stream: BinaryIO, size_bytes: int) -> int:
    if stream.read(len(_IDENTIFIER)) != _IDENTIFIER:
        raise BrokenError(Trouble.MALFORMED, f"a compressed changelog of {size_bytes} bytes that does not begin as one")
    at = 1 + len(_IDENTIFIER)
    total_bytes = 0
    for _ in range(_MOST_CHUNKS):
        if at == size_bytes:
            return total_bytes
        stream.seek(at)
        head = stream.read(_HEAD_BYTES + _CHECKSUM_BYTES + _LONGEST_VARINT_BYTES)
        data_bytes = int.from_bytes(head[1:_HEAD_BYTES], "little")
        if len(head) < _HEAD_BYTES + _CHECKSUM_BYTES or at + _HEAD_BYTES + data_bytes > size_bytes:
            raise BrokenError(Trouble.TRUNCATED, f"a compressed changelog that ends at byte {size_bytes}, within a chunk")
        total_bytes += _length_of_chunk(head, data_bytes - _CHECKSUM_BYTES, at)
        at += _HEAD_BYTES + data_bytes
    raise BrokenError(Trouble.TOO_LARGE, f"a compressed changelog of more than {_MOST_CHUNKS} chunks")


def _length_of_chunk(head: bytes, content_bytes: int, at: int) -> int:
    """Return the uncompressed length of a chunk that has ``content_bytes`` behind its checksum."""
    length_bytes = -1
    if head[0] == _STORED:
        length_bytes = content_bytes
    elif head[0] == _COMPRESSED and content_bytes > 0:
        length_bytes = _varint(head[_HEAD_BYTES + _CHECKSUM_BYTES :][:content_bytes])
    if not 0 < length_bytes <= _LONGEST_CHUNK_BYTES:
        raise BrokenError(Trouble.MALFORMED, f"no chunk of a compressed changelog at byte {at}")
    return length_bytes


def _varint(encoded: bytes) -> int:
    """Decode a number of seven bits a byte, the lowest first; -1 where it does not end."""
    number = 0
    for position, byte in enumerate(encoded):
        number |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return number
    return -1


CHANGELOG_FILE = ManifestKind("changelog", read_changelog_file)
"""The manifest kind of a file of the changelog backend, with its reader."""
