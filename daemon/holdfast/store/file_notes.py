"""Notes on files themselves, in extended attributes: they are synced with the bytes and need no index.

On a copy of an object, the digest that it had when placed, and that it is one. The digest tells, when the index is lost in a
power cut, whether the file's bytes had reached the disk: file systems write names, sizes and times of a new file before its
bytes. It counts only for the time of modification that is noted with it, so it says nothing of a file changed since.

On a file that is whole, although no store has its bytes yet, that it is unsent. Its close was answered before it was sent
(level ``async``), or a send failed (level ``commit``). In the latter case the writer may begin anew, so the mark holds the
file's size and mtime, and stands for these bytes only. Each mark is unique: after a send, only the mark that the file had
then is removed, not one that was set meanwhile.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from typing import NamedTuple

from holdfast.digest import DIGEST_BYTES

_DIGEST = "user.holdfast.digest"
_NOTED = struct.Struct(f"<q{DIGEST_BYTES}s")
_COPY = "user.holdfast.copy"
_UNSENT = "user.holdfast.unsent"
_MARK_BYTES = 8
_STAMP = struct.Struct("<qq")
SetAttribute = Callable[[int, str, bytes], None]
"""fsetxattr(2)."""


class _Note(NamedTuple):
    mtime_ns: int
    digest: bytes


def note_digest(fd: int, digest: bytes) -> None:
    """Note the digest of the file as it is now. Raises ``OSError``."""
    os.setxattr(fd, _DIGEST, _NOTED.pack(os.fstat(fd).st_mtime_ns, digest))


def renew_noted_digest(fd: int, mtime_ns: int, digest: bytes) -> None:
    """Note the digest for another time of modification, if one was noted before. Raises ``OSError``."""
    try:
        os.setxattr(fd, _DIGEST, _NOTED.pack(mtime_ns, digest), os.XATTR_REPLACE)
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
    note = _attribute(file, _DIGEST)
    try:
        return None if note is None else _Note(*_NOTED.unpack(note))
    except struct.error:
        return None


def mark_copy(fd: int) -> None:
    """Mark a file that was fetched into a working directory as a copy of an object, not a file of its user.

    Users can neither see nor remove the mark, so copies are still known when the index is lost. It stays when the file is
    changed: what is made of an object is not for everybody either. Raises ``OSError``.
    """
    os.setxattr(fd, _COPY, b"")


def is_copy(file: int | bytes) -> bool:
    """Say whether a file, given by descriptor or path, is marked; symbolic links are not followed. Raises ``OSError``."""
    return has_mark(file, _COPY)


def has_mark(file: int | bytes, mark: str) -> bool:
    """Say whether a file, given by descriptor or path, has this mark; one that is not there has none.

    Symbolic links are not followed. Raises ``OSError``.
    """
    try:
        return _attribute(file, mark) is not None
    except FileNotFoundError:
        return False


def mark_unsent(fd: int, set_attribute: SetAttribute = os.setxattr) -> None:
    """Mark the file, replacing an earlier mark. Raises what ``set_attribute`` does."""
    set_attribute(fd, _UNSENT, os.urandom(_MARK_BYTES))


def mark_not_accepted(fd: int, set_attribute: SetAttribute = os.setxattr) -> None:
    """Mark the file as one that a store has not accepted, as long as it stays as it is. Raises as ``set_attribute``."""
    set_attribute(fd, _UNSENT, os.urandom(_MARK_BYTES) + _stamp(fd))


def was_not_accepted(mark: bytes) -> bool:
    """Say whether the mark was set after a send had failed."""
    return len(mark) > _MARK_BYTES


def holds_for(mark: bytes, fd: int) -> bool:
    """Say whether the bytes behind ``fd`` are those that were marked."""
    return not was_not_accepted(mark) or mark[_MARK_BYTES:] == _stamp(fd)


def unsent_mark(fd: int) -> bytes | None:
    """Return the file's mark; None if it has none."""
    return _attribute(fd, _UNSENT)


def unmark_unsent(fd: int, mark: bytes | None, remove_attribute: Callable[[int, str], None] = os.removexattr) -> bool:
    """Remove the mark if it is still ``mark``; return whether the file is unmarked now."""
    now = unsent_mark(fd)
    if now is not None and now == mark:
        remove_attribute(fd, _UNSENT)
        return True
    return now is None


def is_unsent(fd: int) -> bool:
    """Say whether the file is marked."""
    return unsent_mark(fd) is not None


def _attribute(file: int | bytes, name: str) -> bytes | None:
    """Return an attribute of a file; None if it has none. Symbolic links are not followed. Raises ``OSError``."""
    try:
        return os.getxattr(file, name, follow_symlinks=isinstance(file, int))
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def _stamp(fd: int) -> bytes:
    stat = os.fstat(fd)
    return _STAMP.pack(stat.st_size, stat.st_mtime_ns)
