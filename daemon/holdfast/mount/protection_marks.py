"""Marks on a directory that note what is done to protect it, so that no more than that is undone.

A mark is an extended attribute. Where a file system has none, what was done is told from what can be seen.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from holdfast.system.inode_flags import IMMUTABLE, inode_flags, set_inode_flag
from holdfast.system.syscalls import rewound

_MARK = "user.holdfast.mount.mountpoint"
"""The attribute's name. Its value has the mode that the directory had, and the placeholders' names, with ``/`` between."""
_SHUT = "user.holdfast.mount.shut"
"""The attribute with the directories that are shut: ``0755 name`` each, with ``/`` between."""
NO_RIGHTS = 0
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
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == NO_RIGHTS


def open_directories(fd: int) -> dict[str, int]:
    """Return the modes of those directories in a directory that are not closed to everybody, by name."""
    with os.scandir(rewound(fd)) as entries:
        directories = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    modes = {each.name: stat.S_IMODE(each.stat(follow_symlinks=False).st_mode) for each in directories}
    return {name: mode for name, mode in modes.items() if mode}


def shut_directories(fd: int) -> dict[str, int]:
    """Return the modes that directories in a directory had before they were shut, by name."""
    try:
        noted = [each.split(" ", 1) for each in os.fsdecode(os.getxattr(fd, _SHUT)).split("/")]
        return {name: int(mode, 8) & 0o3777 for mode, name in noted}
    except (OSError, ValueError):
        return {}


def shut(fd: int) -> None:
    """Take all rights from the directories in one that takes writes, as far as they are this user's and it can be noted."""
    modes = open_directories(fd)
    noted = "/".join(f"{mode:04o} {name}" for name, mode in {**shut_directories(fd), **modes}.items())
    with suppress(OSError):
        os.setxattr(fd, _SHUT, os.fsencode(noted))
        for name in modes:
            with suppress(PermissionError):
                os.chmod(name, NO_RIGHTS, dir_fd=fd)


def open_shut(fd: int) -> None:
    """Give the directories that are shut their rights back. Those of other users than the directory's are left alone."""
    for name, mode in shut_directories(fd).items():
        with suppress(OSError):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) and found.st_uid == os.fstat(fd).st_uid:
                os.chmod(name, mode, dir_fd=fd)
    with suppress(OSError):
        os.removexattr(fd, _SHUT)


def is_immutable(fd: int) -> bool:
    """Say whether a directory is immutable, as by chattr(1)."""
    try:
        return bool(inode_flags(fd) & IMMUTABLE)
    except OSError:  # a file system without such flags
        return False


def set_immutable(fd: int, *, on: bool) -> None:
    """Make a directory immutable, or no longer. Raises ``OSError``."""
    set_inode_flag(fd, IMMUTABLE, on=on)
