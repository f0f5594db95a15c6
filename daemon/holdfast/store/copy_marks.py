"""The mark of a file that was fetched into a working directory: a copy of an object, not a file of its user.

It is an extended attribute of the file itself, which users can neither see nor remove. So copies are still known when the
index, whose entries tell which files they are, is lost. It stays when the file is changed: what is made of an object is not
for everybody either.
"""

from __future__ import annotations

import errno
import os

_MARK = "user.holdfast.copy"


def mark_copy(fd: int) -> None:
    """Mark the file. Raises ``OSError``."""
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
