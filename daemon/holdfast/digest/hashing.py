"""Digests of files, of their chunks, and as they are stored with an object.

A file of more than one chunk has a 64-bit digest for each chunk besides the digest of the whole file. So a part can be
checked and served before the rest has arrived. The chunk size follows from the file's size alone. There are at most
64 chunks, because their digests must fit into the 2 KiB of metadata that S3 allows for an object.

Functions that read a file may wait for the disk: call them in a thread. xxhash releases the GIL.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from holdfast.system.file_reading import FileReader

if TYPE_CHECKING:
    from typing_extensions import Buffer

METADATA_DIGEST = "holdfast-digest"
METADATA_CHUNKS = "holdfast-chunks"
SMALLEST_CHUNK_BYTES = 8 * 2**20
_MOST_CHUNKS = 64
_CHUNK_DIGEST_BYTES = 8
_ALGORITHM = "xxh3-128"
_DIGEST = re.compile("[0-9a-f]{32}")
_READ_BYTES = 2**20
DIGEST_BYTES = 16
POSITION_BITS = 62
_MOST_HOLES_BYTES = 64 * 2**30
"""The limit of holes in a file. They take half a minute to hash, and cost whoever makes them nothing."""
_BLOCK_BYTES = 512  # of st_blocks (stat(2))


def digest_of(data: Buffer) -> bytes:
    """Return the 16-byte xxh3-128 digest of ``data``."""
    return xxhash.xxh3_128_digest(data)


def position_of(name: bytes) -> int:
    """Return a 62-bit number that depends on ``name`` alone: the same in every process and after every restart."""
    return xxhash.xxh3_64_intdigest(name) >> 64 - POSITION_BITS


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


class Hasher:
    """Builds a ``Fingerprint`` of ``size_bytes`` from consecutive buffers; their sizes must add up to ``size_bytes``."""

    def __init__(self, size_bytes: int) -> None:
        self._whole = xxhash.xxh3_128()
        self._chunk_bytes = chunk_bytes_for(size_bytes)
        self._chunked = size_bytes > self._chunk_bytes
        self._chunk = xxhash.xxh3_64()
        self._left = self._chunk_bytes
        self._chunks: list[bytes] = []

    def update(self, data: Buffer) -> None:
        """Add the next bytes."""
        self._whole.update(data)
        if not self._chunked:
            return
        view = memoryview(data).cast("B")
        while len(view) >= self._left:
            self._chunk.update(view[: self._left])
            view = view[self._left :]
            self._close_chunk()
        if len(view):
            self._chunk.update(view)
            self._left -= len(view)

    def finish(self) -> Fingerprint:
        """Return the fingerprint of everything that was added."""
        if self._chunked and self._left < self._chunk_bytes:
            self._close_chunk()
        return Fingerprint(self._whole.digest(), tuple(self._chunks))

    def _close_chunk(self) -> None:
        self._chunks.append(self._chunk.digest())
        self._chunk = xxhash.xxh3_64()
        self._left = self._chunk_bytes


def fingerprint_of_buffer(data: Buffer) -> Fingerprint:
    """Return the fingerprint of ``data``."""
    size_bytes = memoryview(data).nbytes
    if size_bytes <= SMALLEST_CHUNK_BYTES:
        return Fingerprint(digest_of(data))
    hasher = Hasher(size_bytes)
    hasher.update(data)
    return hasher.finish()


def fingerprint_of_file(fd: int, *, may_go_on: Callable[[], object] = lambda: None) -> Fingerprint:
    """Return the fingerprint of the whole file ``fd``; its file position is neither used nor changed.

    If the file is written meanwhile, the fingerprint belongs to no version: the caller must compare size and mtime before
    and after. A file that grows is not followed far beyond the size that it began with. Raises ``OSError``
    (EBUSY: a user holds the file's lock), and whatever ``may_go_on`` raises, which is called after each piece of the file.
    """
    hasher = Hasher(os.fstat(fd).st_size)
    hash_file(fd, hasher.update, may_go_on=may_go_on)
    return hasher.finish()


def hash_file(fd: int, update: Callable[[Buffer], object], *, may_go_on: Callable[[], object]) -> None:
    """Pass the file ``fd`` to ``update`` piece by piece, each valid until the next, as ``fingerprint_of_file`` says."""
    size_bytes = os.fstat(fd).st_size
    buffer = bytearray(min(_READ_BYTES, max(1, size_bytes)))
    view = memoryview(buffer)
    reader = FileReader(fd, may_go_on)
    offset = 0
    while offset <= size_bytes and (count := reader.read_into(view, offset)):
        update(view[:count])
        offset += count
        may_go_on()


def is_hollow(stat: os.stat_result) -> bool:
    """Say whether more than 64 GiB of a file were never written, so that to hash it would be out of proportion."""
    return stat.st_size - stat.st_blocks * _BLOCK_BYTES > _MOST_HOLES_BYTES


class ChunkHasher:
    """Builds the 8-byte digest that ``Fingerprint.chunks`` holds for one chunk."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()

    def update(self, data: Buffer) -> None:
        """Add the next bytes."""
        self._hash.update(data)

    def finish(self) -> Fingerprint:
        """Return a fingerprint whose only member is this chunk's digest."""
        return Fingerprint(b"", (self._hash.digest(),))
