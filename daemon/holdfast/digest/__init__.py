"""xxh3-128 of files and buffers, per file and per chunk; the only importer of xxhash."""

from holdfast.digest.chunks import Fingerprint, chunk_bytes_for, chunk_count
from holdfast.digest.hashing import (
    DIGEST_BYTES,
    POSITION_BITS,
    ChunkHasher,
    Hasher,
    digest_of,
    fingerprint_of_buffer,
    fingerprint_of_file,
    is_hollow,
    md5_of_file,
    position_of,
)

__all__ = [
    "DIGEST_BYTES",
    "POSITION_BITS",
    "ChunkHasher",
    "Fingerprint",
    "Hasher",
    "chunk_bytes_for",
    "chunk_count",
    "digest_of",
    "fingerprint_of_buffer",
    "fingerprint_of_file",
    "is_hollow",
    "md5_of_file",
    "position_of",
]
