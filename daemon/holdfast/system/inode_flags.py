"""Flags of files and directories, as chattr(1) sets them."""

from __future__ import annotations

import fcntl
import struct

IMMUTABLE = 0x10
NOT_COPIED_ON_WRITE = 0x80_0000
"""``FS_NOCOW_FL``, of btrfs alone: a file that is empty, or is made in such a directory, is overwritten in place."""

_GET_FLAGS, _SET_FLAGS = 0x8008_6601, 0x4008_6602
"""``FS_IOC_GETFLAGS`` and ``FS_IOC_SETFLAGS``."""


def inode_flags(fd: int) -> int:
    """Return the flags. Raises ``OSError``, also where the file system has none."""
    flags: int = struct.unpack("@i", fcntl.ioctl(fd, _GET_FLAGS, bytes(struct.calcsize("@l")))[:4])[0]
    return flags


def set_inode_flag(fd: int, flag: int, *, on: bool) -> None:
    """Set or clear a flag. Raises ``OSError``, also where the file system does not know it."""
    flags = inode_flags(fd)
    wanted = flags | flag if on else flags & ~flag
    if wanted != flags:
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("@l", wanted))
