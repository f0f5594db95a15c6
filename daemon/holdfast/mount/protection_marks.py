"""Marks on a directory that note what is done to protect it, so that no more than that is undone.

A mark is an extended attribute. Where a file system has none, what was done is told from what can be seen.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress

from holdfast.system.syscalls import rewound

_GET_FLAGS, _SET_FLAGS = 0x8008_6601, 0x4008_6602
"""``FS_IOC_GETFLAGS`` and ``FS_IOC_SETFLAGS``."""
_IMMUTABLE_FLAG = 0x10
_MARK = "user.holdfast.mount.mountpoint"
"""The attribute's name. Its value has the mode that the directory had, and the placeholders' names, with ``/`` between."""
_NO_RIGHTS = 0
MAY_WRITE = 0o222
OWNERS_RIGHTS = 0o700


def done_to(fd: int) -> tuple[int, frozenset[str]] | None:
    """Return the mode that a directory had before it was protected, and the names of the placeholders made in it.

    None if Holdfast has not protected it.
    """
    try:
        mode, *names = os.fsdecode(os.getxattr(fd, _MARK)).split("/")
        return int(mode, 8) & 0o7777, frozenset(names)
    except ValueError:
        return None
    except OSError as problem:
        if problem.errno == errno.ENODATA:
            return None
    found, names_found = os.fstat(fd), placeholders(fd)
    is_closed = found.st_uid == os.geteuid() != 0 and not found.st_mode & MAY_WRITE
    if is_immutable(fd) or names_found or is_closed:
        return found.st_mode & 0o7777 | OWNERS_RIGHTS, frozenset(names_found)
    return None


def mark(fd: int, mode: int, names: Iterable[str] = ()) -> None:
    """Note in a directory that takes writes what is done to it, beside what was done before."""
    mode, made = done_to(fd) or (mode & 0o7777, frozenset())
    with suppress(OSError):  # a file system without such attributes
        os.setxattr(fd, _MARK, os.fsencode("/".join([f"{mode:04o}", *sorted(made.union(names))])))


def remove_mark(fd: int) -> None:
    """Forget what was done."""
    with suppress(OSError):
        os.removexattr(fd, _MARK)


def placeholders(fd: int) -> list[str]:
    """Return the names of all directories in a directory that nobody may enter."""
    with os.scandir(rewound(fd)) as entries:
        return [entry.name for entry in entries if is_placeholder(entry)]


def is_placeholder(entry: os.DirEntry[str]) -> bool:
    """Say whether an entry is a directory that nobody may enter."""
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == _NO_RIGHTS


def is_immutable(fd: int) -> bool:
    """Say whether a directory is immutable, as by chattr(1)."""
    try:
        return bool(_flags(fd) & _IMMUTABLE_FLAG)
    except OSError:  # a file system without such flags
        return False


def set_immutable(fd: int, *, on: bool) -> None:
    """Make a directory immutable, or no longer. Raises ``OSError``."""
    flags = _flags(fd)
    wanted = flags | _IMMUTABLE_FLAG if on else flags & ~_IMMUTABLE_FLAG
    if wanted != flags:
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("@l", wanted))


def _flags(fd: int) -> int:
    flags: int = struct.unpack("@i", fcntl.ioctl(fd, _GET_FLAGS, bytes(struct.calcsize("@l")))[:4])[0]
    return flags
