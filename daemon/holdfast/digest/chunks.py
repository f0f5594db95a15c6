"""The chunks of a file, and the digests that are stored with an object.

A file of more than one chunk has a 64-bit digest for each chunk besides the digest of the whole file. So a part can be
checked and served before the rest has arrived. The chunk size follows from the file's size alone. There are at most
64 chunks, because their digests must fit into the 2 KiB of metadata that S3 allows for an object.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

SMALLEST_CHUNK_BYTES = 8 * 2**20
_MOST_CHUNKS = 64
_CHUNK_DIGEST_BYTES = 8
_ALGORITHM = "xxh3-128"
_DIGEST = re.compile("[0-9a-f]{32}")

METADATA_DIGEST = "holdfast-digest"
METADATA_CHUNKS = "holdfast-chunks"


def chunk_bytes_for(size_bytes: int) -> int:
    """Return the chunk size of a file of ``size_bytes``: a power of two, at least 8 MiB."""
    chunk = SMALLEST_CHUNK_BYTES
    while chunk * _MOST_CHUNKS < size_bytes:
        chunk *= 2
    return chunk


def chunk_count(size_bytes: int) -> int:
    """Return how many chunks a file of ``size_bytes`` has; an empty file has one."""
    chunk = chunk_bytes_for(size_bytes)
    return max(1, -(-size_bytes // chunk))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests of a file: ``digest`` of 16 bytes and, for more than one chunk, ``chunks`` of 8 bytes each."""

    digest: bytes
    chunks: tuple[bytes, ...] = ()

    def metadata(self) -> dict[str, str]:
        """Return the object metadata that carries this fingerprint."""
        fields = {METADATA_DIGEST: f"{_ALGORITHM}:{self.digest.hex()}"}
        if self.chunks:
            fields[METADATA_CHUNKS] = base64.b64encode(b"".join(self.chunks)).decode()
        return fields

    @classmethod
    def from_metadata(cls, fields: dict[str, str], size_bytes: int) -> Fingerprint | None:
        """Read what ``metadata`` wrote for an object of ``size_bytes``.

        None if there is no digest, or none that this version understands: the object is then not checked by digest.
        Chunk digests that are damaged or don't fit the size are ignored: the whole file can still be checked.
        """
        algorithm, _, text = fields.get(METADATA_DIGEST, "").partition(":")
        if algorithm != _ALGORITHM or not _DIGEST.fullmatch(text):
            return None
        chunks = fields.get(METADATA_CHUNKS)
        return cls(bytes.fromhex(text), _unpacked(chunks, chunk_count(size_bytes)) if chunks else ())


def _unpacked(text: str, count: int) -> tuple[bytes, ...]:
    try:
        packed = base64.b64decode(text, validate=True)
    except ValueError:
        return ()
    if count == 1 or len(packed) != count * _CHUNK_DIGEST_BYTES:
        return ()
    return tuple(packed[i : i + _CHUNK_DIGEST_BYTES] for i in range(0, len(packed), _CHUNK_DIGEST_BYTES))
