"""Hashing. Functions that read a file may wait for the disk: call them in a thread. xxhash releases the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import xxhash

from holdfast.digest.chunks import Fingerprint, chunk_bytes_for

if TYPE_CHECKING:
    from typing_extensions import Buffer

_READ_BYTES = 2**20
DIGEST_BYTES = 16
_MOST_HOLES_BYTES = 64 * 2**30
"""The limit of holes in a file. They take half a minute to hash, and cost whoever makes them nothing."""
_BLOCK_BYTES = 512  # of st_blocks (stat(2))


def digest_of(data: Buffer) -> bytes:
    """Return the 16-byte xxh3-128 digest of ``data``."""
    return xxhash.xxh3_128_digest(data)


POSITION_BITS = 62


def position_of(name: bytes) -> int:
    """Return a 62-bit number that depends on ``name`` alone: the same in every process and after every restart."""
    return xxhash.xxh3_64_intdigest(name) >> 64 - POSITION_BITS


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
    hasher = Hasher(memoryview(data).nbytes)
    hasher.update(data)
    return hasher.finish()


def fingerprint_of_file(fd: int, *, may_go_on: Callable[[], object] = lambda: None) -> Fingerprint:
    """Return the fingerprint of the whole file ``fd``; its file position is neither used nor changed.

    If the file is written meanwhile, the fingerprint belongs to no version: the caller must compare size and mtime before
    and after. A file that grows is not followed far beyond the size that it began with. Raises ``OSError``,
    and whatever ``may_go_on`` raises, which is called after each piece of the file.
    """
    hasher = Hasher(os.fstat(fd).st_size)
    hash_file(fd, hasher.update, may_go_on=may_go_on)
    return hasher.finish()


def hash_file(fd: int, update: Callable[[Buffer], object], *, may_go_on: Callable[[], object]) -> None:
    """Pass the file ``fd`` to ``update`` piece by piece, each valid until the next, as ``fingerprint_of_file`` says."""
    size_bytes = os.fstat(fd).st_size
    buffer = bytearray(min(_READ_BYTES, max(1, size_bytes)))
    view = memoryview(buffer)
    offset = 0
    while offset <= size_bytes and (count := os.preadv(fd, [view], offset)):
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
