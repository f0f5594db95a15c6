"""Whether the bytes of a local file are those of an object, when the index does not know it any more.

Size and time of modification prove nothing: after a power cut a file has both, and zeros for bytes that had not been written
out. A proof is a digest from before that holds: the one that the store has with the object, the one that was noted on the
file when it was fetched, or an ETag that is the MD5 of the object, as S3 has for objects that came in one part.
"""

from __future__ import annotations

import enum
import os
import re

from holdfast.digest import Fingerprint, md5_of_file
from holdfast.remote import ObjectInfo
from holdfast.store import noted_digest

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


class Proof(enum.Enum):
    """What the digests say."""

    SAME = enum.auto()
    DIFFERENT = enum.auto()
    """The file has other bytes, or another time where only times can be compared. It may be the only copy of something."""
    NONE = enum.auto()
    """By size and time it is a copy of the object, but nothing vouches for its bytes."""


def proof(fd: int, found: Fingerprint, info: ObjectInfo) -> Proof:
    """Compare a file, whose fingerprint is ``found``, with an object. Raises ``OSError``; waits for the disk."""
    stat = os.fstat(fd)
    expected = Fingerprint.from_metadata(info.metadata, info.size_bytes)
    if stat.st_size != info.size_bytes or (expected is None and stat.st_mtime_ns != info.modified_ns):
        return Proof.DIFFERENT
    digest = expected.digest if expected is not None else noted_digest(fd)
    if digest is not None:
        return Proof.SAME if digest == found.digest else Proof.DIFFERENT
    etag = _MD5.fullmatch(info.etag)
    return Proof.SAME if etag is not None and etag[1] == md5_of_file(fd) else Proof.NONE
