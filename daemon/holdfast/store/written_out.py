"""Whether the bytes of a file have reached the disk, or the disk has refused them after the writer was told of success.

What it has refused is in memory alone, and leaves it at any time: the file may be read as other bytes then. The kernel tells
each open file description of that once.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from holdfast.errors import LostBytesError
from holdfast.system.syscalls import check_written_out

_REFUSED = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


def check_nothing_is_lost(fd: int) -> None:
    """Raise ``LostBytesError`` if the disk has refused bytes of the file. Waits for nothing."""
    try:
        check_written_out(fd)
    except OSError as problem:
        if problem.errno not in _REFUSED:
            raise
        raise LostBytesError(f"the disk has lost bytes of the file ({problem.strerror})") from None


def sync_bytes(fd: int, *, data_only: bool = False) -> None:
    """fsync(2), or fdatasync(2). Raises ``LostBytesError`` if the disk has refused bytes of the file, else ``OSError``.

    A sync may also fail before it has written anything, as on a full btrfs: then the bytes are still to be written.
    """
    check_nothing_is_lost(fd)
    witness = -1
    with suppress(OSError):  # an ordinary user may not read every file that it may write
        witness = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        (os.fdatasync if data_only else os.fsync)(fd)
    except OSError:
        if witness >= 0:
            check_nothing_is_lost(witness)  # ``fd`` was told
        raise
    finally:
        if witness >= 0:
            os.close(witness)
