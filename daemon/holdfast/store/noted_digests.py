"""Notes on a copy of an object, in extended attributes of the file: the digest that it had when placed, and that it is one.

The digest tells, when the index is lost in a power cut, whether the file's bytes had reached the disk: file systems write
names, sizes and times of a new file before its bytes. It counts only for the time of modification that is noted with it, so
it says nothing of a file that was changed since.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import NamedTuple

from holdfast.digest import DIGEST_BYTES

_ATTRIBUTE = "user.holdfast.digest"
_NOTED = struct.Struct(f"<q{DIGEST_BYTES}s")
_MARK = "user.holdfast.copy"


class _Note(NamedTuple):
    mtime_ns: int
    digest: bytes


def note_digest(fd: int, digest: bytes) -> None:
    """Note the digest of the file as it is now. Raises ``OSError``."""
    os.setxattr(fd, _ATTRIBUTE, _NOTED.pack(os.fstat(fd).st_mtime_ns, digest))


def renew_noted_digest(fd: int, mtime_ns: int, digest: bytes) -> None:
    """Note the digest for another time of modification, if one was noted before. Raises ``OSError``."""
    try:
        os.setxattr(fd, _ATTRIBUTE, _NOTED.pack(mtime_ns, digest), os.XATTR_REPLACE)
    except OSError as problem:
        if problem.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise


def noted_digest(fd: int) -> bytes | None:
    """Return the noted digest if it is of the file as it is now, by its time of modification. Raises ``OSError``."""
    noted = _noted(fd)
    return noted.digest if noted is not None and noted.mtime_ns == os.fstat(fd).st_mtime_ns else None


def digest_when_placed(file: bytes) -> bytes | None:
    """Return the digest that was noted on the file at this path, even if it was changed since; None if there is none.

    A symbolic link is not followed. Raises ``OSError``.
    """
    noted = _noted(file)
    return noted.digest if noted is not None else None


def _noted(file: int | bytes) -> _Note | None:
    try:
        return _Note(*_NOTED.unpack(os.getxattr(file, _ATTRIBUTE, follow_symlinks=isinstance(file, int))))
    except (OSError, struct.error) as problem:
        if isinstance(problem, struct.error) or problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def mark_copy(fd: int) -> None:
    """Mark a file that was fetched into a working directory as a copy of an object, not a file of its user.

    Users can neither see nor remove the mark, so copies are still known when the index is lost. It stays when the file is
    changed: what is made of an object is not for everybody either. Raises ``OSError``.
    """
    os.setxattr(fd, _MARK, b"")


def is_copy(file: int | bytes) -> bool:
    """Say whether a file, given by descriptor or path, is marked; symbolic links are not followed. Raises ``OSError``."""
    try:
        os.getxattr(file, _MARK, follow_symlinks=isinstance(file, int))
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT):
            return False
        raise
    return True
