"""An object as a listing describes it, and as it is kept of many: packed into bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from holdfast.remote import ObjectInfo

_NUMBERS = struct.Struct("<QQ")


class KnownObject(NamedTuple):
    """An object as a listing describes it."""

    size_bytes: int
    modified_ns: int
    etag: str


def packed(info: ObjectInfo | KnownObject) -> bytes:
    """Return size, time and etag of an object, packed."""
    return _NUMBERS.pack(info.size_bytes, info.modified_ns) + info.etag.encode()


def unpacked(data: bytes) -> KnownObject:
    """Return what was ``packed``."""
    size_bytes, modified_ns = _NUMBERS.unpack_from(data)
    return KnownObject(size_bytes, modified_ns, data[_NUMBERS.size :].decode())
