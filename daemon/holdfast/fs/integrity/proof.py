"""Whether the bytes of a local file are those of an object, when the index does not know it any more.

Size and time of modification prove nothing: after a power cut a file has both, and zeros for bytes that had not been written
out. A proof is a digest from before that holds: the one that the store has with the object, the one that was noted on the
file when it was fetched, an ETag that is the MD5 of the object, as S3 has for objects that came in one part, or another
checksum that the store itself has of the whole object. The last costs a request, and is asked for only if the others say
nothing.
"""

from __future__ import annotations

import enum
import os
import re
from functools import partial

import trio

from holdfast.digest import Checksum, Fingerprint
from holdfast.remote import ObjectInfo
from holdfast.store import noted_digest
from holdfast.transfer import HashingThreads, RemoteAccess

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


class Proof(enum.Enum):
    """What the digests say."""

    SAME = enum.auto()
    DIFFERENT = enum.auto()
    """The file has other bytes, or another time where only times can be compared. It may be the only copy of something."""
    NONE = enum.auto()
    """By size and time it is a copy of the object, but nothing vouches for its bytes."""


async def proof(fd: int, found: Fingerprint, info: ObjectInfo, access: RemoteAccess, hashing: HashingThreads) -> Proof:
    """Compare a file, whose fingerprint is ``found``, with an object of the store behind ``access``. Raises ``OSError``."""
    known = await hashing.run(partial(_proof_at_hand, found=found, info=info), fd)
    if known is not Proof.NONE:
        return known
    checksum = await access.checksum(info)
    if checksum is None:
        return Proof.NONE
    return Proof.SAME if await hashing.run(partial(_fits, checksum), fd) else Proof.DIFFERENT


def _proof_at_hand(fd: int, found: Fingerprint, info: ObjectInfo) -> Proof:
    """Compare without asking the store. Raises ``OSError``; waits for the disk."""
    stat = os.fstat(fd)
    expected = Fingerprint.from_metadata(info.metadata, info.size_bytes)
    if stat.st_size != info.size_bytes or (expected is None and stat.st_mtime_ns != info.modified_ns):
        return Proof.DIFFERENT
    digest = expected.digest if expected is not None else noted_digest(fd)
    if digest is not None:
        return Proof.SAME if digest == found.digest else Proof.DIFFERENT
    etag = _MD5.fullmatch(info.etag)
    return Proof.SAME if etag is not None and _fits(Checksum("md5", bytes.fromhex(etag[1])), fd) else Proof.NONE


def _fits(checksum: Checksum, fd: int) -> bool:
    return checksum.fits(fd, may_go_on=trio.from_thread.check_cancelled)
