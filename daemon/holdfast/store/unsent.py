"""The mark of a file whose bytes somebody was told are safe, although no store has them yet (level ``async``).

It is an extended attribute of the file itself, so it is synced with the bytes and needs no index. Each mark is another one:
who has sent what the file was takes away the mark that it had then, and not one that was made meanwhile.
"""

from __future__ import annotations

import errno
import os

_MARK = "user.holdfast.unsent"
_MARK_BYTES = 8


def mark_unsent(fd: int) -> None:
    """Mark the file, anew if it is marked. Raises ``OSError``."""
    os.setxattr(fd, _MARK, os.urandom(_MARK_BYTES))


def unsent_mark(fd: int) -> bytes | None:
    """Return the file's mark; None when it has none."""
    try:
        return os.getxattr(fd, _MARK)
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return None
        raise


def unmark_unsent(fd: int, mark: bytes | None) -> bool:
    """Take the mark away if it is still ``mark``; return whether the file has none now."""
    now = unsent_mark(fd)
    if now is not None and now == mark:
        os.removexattr(fd, _MARK)
        return True
    return now is None


def is_unsent(fd: int) -> bool:
    """Say whether the file is marked."""
    return unsent_mark(fd) is not None
