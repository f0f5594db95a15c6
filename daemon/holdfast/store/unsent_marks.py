"""The mark of a file that is whole, although no store has its bytes yet.

Its close was answered before it was sent (level ``async``), or a send failed (level ``commit``). In the latter case the
writer may begin anew, so the mark holds the file's size and mtime, and stands for these bytes only.

It is an extended attribute of the file itself, so it is synced with the bytes and needs no index. Each mark is unique: after
a send, only the mark that the file had then is removed, not one that was set meanwhile.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

_MARK = "user.holdfast.unsent"
_MARK_BYTES = 8
_STAMP = struct.Struct("<qq")
SetAttribute = Callable[[int, str, bytes], None]
"""fsetxattr(2)."""


def mark_unsent(fd: int, set_attribute: SetAttribute = os.setxattr) -> None:
    """Mark the file, replacing an earlier mark. Raises what ``set_attribute`` does."""
    set_attribute(fd, _MARK, os.urandom(_MARK_BYTES))


def mark_not_accepted(fd: int, set_attribute: SetAttribute = os.setxattr) -> None:
    """Mark the file as one that a store has not accepted, as long as it stays as it is. Raises as ``set_attribute``."""
    set_attribute(fd, _MARK, os.urandom(_MARK_BYTES) + _stamp(fd))


def was_not_accepted(mark: bytes) -> bool:
    """Say whether the mark was set after a send had failed."""
    return len(mark) > _MARK_BYTES


def holds_for(mark: bytes, fd: int) -> bool:
    """Say whether the bytes behind ``fd`` are those that were marked."""
    return not was_not_accepted(mark) or mark[_MARK_BYTES:] == _stamp(fd)


def unsent_mark(fd: int) -> bytes | None:
    """Return the file's mark; None if it has none."""
    try:
        return os.getxattr(fd, _MARK)
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def unmark_unsent(fd: int, mark: bytes | None, remove_attribute: Callable[[int, str], None] = os.removexattr) -> bool:
    """Remove the mark if it is still ``mark``; return whether the file is unmarked now."""
    now = unsent_mark(fd)
    if now is not None and now == mark:
        remove_attribute(fd, _MARK)
        return True
    return now is None


def is_unsent(fd: int) -> bool:
    """Say whether the file is marked."""
    return unsent_mark(fd) is not None


def _stamp(fd: int) -> bytes:
    stat = os.fstat(fd)
    return _STAMP.pack(stat.st_size, stat.st_mtime_ns)
