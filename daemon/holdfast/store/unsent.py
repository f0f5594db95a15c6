"""The mark of a file whose bytes somebody was told are safe, although no store has them yet (level ``async``).

It is an extended attribute of the file itself, so it is synced with the bytes and needs no index.
"""

from __future__ import annotations

import errno
import os

_MARK = "user.holdfast.unsent"


def mark_unsent(fd: int) -> None:
    """Mark the file. Raises ``OSError``."""
    os.setxattr(fd, _MARK, b"")


def unmark_unsent(fd: int) -> None:
    """Take the mark away; it may be gone."""
    if is_unsent(fd):
        os.removexattr(fd, _MARK)


def is_unsent(fd: int) -> bool:
    """Say whether the file is marked."""
    try:
        os.getxattr(fd, _MARK)
    except OSError as problem:
        if problem.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return False
        raise
    return True
