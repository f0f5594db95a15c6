"""xxh3-128 of files and buffers, per file and per chunk, and the checksums of stores; the only importer of xxhash."""

from holdfast.digest.checksums import CHECKSUM_ALGORITHMS, Checksum
from holdfast.digest.hashing import (
    DIGEST_BYTES,
    POSITION_BITS,
    ChunkHasher,
    Fingerprint,
    Hasher,
    chunk_bytes_for,
    chunk_count,
    digest_of,
    fingerprint_of_buffer,
    fingerprint_of_file,
    is_hollow,
    position_of,
)
