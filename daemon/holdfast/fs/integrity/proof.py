"""Compares the bytes of a local file with those of an object, when the index does not know it any more.

Size and time of modification prove nothing: after a power cut a file has both, and zeros for bytes that had not been written
out. A proof is an earlier digest that matches: the one that the store has with the object, the one that was noted on the
file when it was fetched, an ETag that is the MD5 of the object, as S3 has for objects that came in one part, or another
checksum that the store itself has of the whole object. The last costs a request, and is asked for only if the others say
nothing. A digest in the store that differs proves nothing if the store's own checksum fits: it is of earlier bytes
(``transfer.stale_notes``).
"""

from __future__ import annotations

import enum
import os
from functools import partial

import trio

from holdfast.digest import Checksum, Fingerprint
from holdfast.remote import ObjectInfo
from holdfast.store import noted_digest
from holdfast.transfer import HashingThreads, RemoteAccess, is_stale


class Proof(enum.Enum):
    """The verdict of the digests."""

    SAME = enum.auto()
    DIFFERENT = enum.auto()
    """The file has other bytes, or another time where only times can be compared. It may be the only copy of something."""
    NONE = enum.auto()
    """The file is a copy of the object by its size and time, but nothing vouches for its bytes."""


async def proof(fd: int, found: Fingerprint, info: ObjectInfo, access: RemoteAccess, hashing: HashingThreads) -> Proof:
    """Compare a file, whose fingerprint is ``found``, with an object of the store behind ``access``. Raises ``OSError``."""

    async def fits(checksum: Checksum) -> bool:
        return await hashing.run(partial(checksum.fits, may_go_on=trio.from_thread.check_cancelled), fd)

    stat = os.fstat(fd)
    expected = Fingerprint.from_metadata(info.metadata, info.size_bytes)
    if stat.st_size != info.size_bytes or (expected is None and stat.st_mtime_ns != info.modified_ns):
        return Proof.DIFFERENT
    digest = expected.digest if expected is not None else noted_digest(fd)
    if digest == found.digest:
        return Proof.SAME
    if expected is not None:
        return Proof.SAME if await is_stale(access, info, fits) else Proof.DIFFERENT
    if digest is not None:
        return Proof.DIFFERENT
    md5 = Checksum.of_etag(info.etag)
    if md5 is not None and await fits(md5):
        return Proof.SAME
    checksum = await access.checksum(info)
    if checksum is None:
        return Proof.NONE
    return Proof.SAME if await fits(checksum) else Proof.DIFFERENT
