"""Running programs, which must not be truncated.

The kernel does this itself (ETXTBSY), except for an open that reads and truncates: on a FUSE file system it checks only
after the open, which has already truncated the file. A file that runs is one that execve(2) has open. The kernel marks such
an open, and its release, with a flag that open(2) takes from nobody (linux/fs.h).
"""

from __future__ import annotations

import errno
import os

from holdfast.fs.inodes.open_file import OpenFile

_FMODE_EXEC = 0x20


def executes(flags: int) -> bool:
    """Say whether an open with these flags, or its release, is that of a program that runs."""
    return bool(flags & _FMODE_EXEC)


def check_not_executed(opened: OpenFile, flags: int) -> None:
    """Raise ETXTBSY if a read-only open with these flags would truncate a running program."""
    if opened.programs and flags & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))
