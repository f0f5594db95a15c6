"""Checksums of whole objects, of the kinds that stores compute by themselves. The names of the algorithms are S3's.

awscrt has the two CRCs that are neither in Python's library nor in xxhash. It is loaded when one of them is computed.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import xxhash

from holdfast.digest.hashing import hash_file

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Hash(Protocol):
    def update(self, data: Buffer, /) -> None: ...
    def digest(self) -> bytes: ...


class _Crc:
    """A CRC with the interface of ``hashlib``; the digest is its number, big end first."""

    def __init__(self, function: Callable[[Buffer, int], int], size_bytes: int) -> None:
        self._function = function
        self._size_bytes = size_bytes
        self._value = 0

    def update(self, data: Buffer, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size_bytes, "big")


def _crc32c() -> _Hash:
    from awscrt.checksums import crc32c

    return _Crc(crc32c, 4)


def _crc64nvme() -> _Hash:
    from awscrt.checksums import crc64nvme

    return _Crc(crc64nvme, 8)


_HASHES: dict[str, Callable[[], _Hash]] = {
    "sha512": hashlib.sha512,
    "sha256": hashlib.sha256,
    "sha1": partial(hashlib.sha1, usedforsecurity=False),
    "xxhash128": xxhash.xxh3_128,
    "md5": partial(hashlib.md5, usedforsecurity=False),
    "xxhash3": xxhash.xxh3_64,
    "xxhash64": xxhash.xxh64,
    "crc64nvme": _crc64nvme,
    "crc32c": _crc32c,
    "crc32": partial(_Crc, zlib.crc32, 4),
}
CHECKSUM_ALGORITHMS = tuple(_HASHES)
"""The names of the algorithms, strongest first."""


_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


@dataclass(frozen=True, slots=True)
class Checksum:
    """The digest of a whole object by one of ``CHECKSUM_ALGORITHMS``. A value of the wrong length fits no bytes."""

    algorithm: str
    value: bytes

    @classmethod
    def of_etag(cls, etag: str) -> Checksum | None:
        """Return the MD5 that ``etag`` may be, as S3's are of objects that came in one part; None if it has another form."""
        found = _MD5.fullmatch(etag)
        return cls("md5", bytes.fromhex(found[1])) if found is not None else None

    def fits_all(self, buffers: Iterable[Buffer]) -> bool:
        """Say whether ``buffers`` are the object's bytes."""
        computed = _HASHES[self.algorithm]()
        for buffer in buffers:
            computed.update(buffer)
        return computed.digest() == self.value

    def fits(self, fd: int, *, may_go_on: Callable[[], object] = lambda: None) -> bool:
        """Say whether the file ``fd`` has the object's bytes. Reads all of it; raises as ``fingerprint_of_file`` does."""
        computed = _HASHES[self.algorithm]()
        hash_file(fd, computed.update, may_go_on=may_go_on)
        return computed.digest() == self.value
