"""Bytes that the disk has refused after their write had succeeded, and the mark of a file that has lost some.

A write returns when its bytes are in memory; the kernel writes them out later. If the disk refuses them then (a thin one
that has run out of space, a bad block), the right ones stay in memory until the kernel needs the room, and the disk has
others. The kernel tells each open file description of that once, and forgets it with the inode. So whoever is told first
marks the file, by an extended attribute, which stays until the file is truncated to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from holdfast.errors import LostBytesError
from holdfast.store.file_notes import SetAttribute, has_mark
from holdfast.system.syscalls import REFUSALS, was_refused

_MARK = "user.holdfast.lost"


def mark_lost(fd: int, set_attribute: SetAttribute = os.setxattr) -> None:
    """Mark the file. Raises what ``set_attribute`` does."""
    set_attribute(fd, _MARK, b"")


def unmark_lost(fd: int, remove_attribute: Callable[[int, str], None] = os.removexattr) -> None:
    """Remove the mark. Raises what ``remove_attribute`` does."""
    remove_attribute(fd, _MARK)


def is_marked_lost(file: int | bytes) -> bool:
    """Say whether a file, given by descriptor or path, is marked; symbolic links are not followed. Raises ``OSError``."""
    return has_mark(file, _MARK)


def check_nothing_lost(fd: int) -> None:
    """Raise ``LostBytesError`` if the disk has refused bytes of the file; then the caller marks it. It waits for nothing."""
    if was_refused(fd) or is_marked_lost(fd):
        raise LostBytesError


def sync_bytes(fd: int, *, data_only: bool = False) -> None:
    """fsync(2), or fdatasync(2). Raises ``LostBytesError`` as ``check_nothing_lost`` does, else ``OSError``.

    A sync may fail though no byte is lost, as on a full btrfs. So another description of the file is synced, and then the
    kernel is asked by this one.
    """
    other = _opened_again(fd)
    try:
        (os.fdatasync if data_only else os.fsync)(fd if other is None else other)
    except OSError as problem:
        check_nothing_lost(fd)
        if other is None and problem.errno in REFUSALS:
            raise LostBytesError from None
        raise
    finally:
        if other is not None:
            os.close(other)
    check_nothing_lost(fd)


def _opened_again(fd: int) -> int | None:
    """Return another description of the file; None if there can't be one, as where a user's daemon has lost its rights."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
