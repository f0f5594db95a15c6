"""The mark of a file whose close was answered, although no store has its bytes yet (level ``async``).

It is an extended attribute of the file itself, so it is synced with the bytes and needs no index. Each mark is unique: after
a send, only the mark that the file had then is removed, not one that was set meanwhile.
"""

from __future__ import annotations

import errno
import os

_MARK = "user.holdfast.unsent"
_MARK_BYTES = 8


def mark_unsent(fd: int) -> None:
    """Mark the file, replacing an earlier mark. Raises ``OSError``."""
    os.setxattr(fd, _MARK, os.urandom(_MARK_BYTES))


def unsent_mark(fd: int) -> bytes | None:
    """Return the file's mark; None if it has none."""
    try:
        return os.getxattr(fd, _MARK)
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def unmark_unsent(fd: int, mark: bytes | None) -> bool:
    """Remove the mark if it is still ``mark``; return whether the file is unmarked now."""
    now = unsent_mark(fd)
    if now is not None and now == mark:
        os.removexattr(fd, _MARK)
        return True
    return now is None


def is_unsent(fd: int) -> bool:
    """Say whether the file is marked."""
    return unsent_mark(fd) is not None
