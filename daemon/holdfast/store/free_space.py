"""The space of a file system, and of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

_MOST_MEASURES = 3

T = TypeVar("T")

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or a quota, that is full."""


@contextmanager
def ignoring_full_disk() -> Iterator[None]:
    """Ignore that a disk, or a quota, is full."""
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise


class Space(NamedTuple):
    """The disk space that files take: inodes, and bytes of blocks."""

    files: int
    size_bytes: int

    def and_another(self, size_bytes: int) -> Space:
        """Return this space and that of one more file."""
        return Space(self.files + 1, self.size_bytes + size_bytes)

    def with_more(self, more: Space) -> Space:
        """Return the sum of both."""
        return Space(self.files + more.files, self.size_bytes + more.size_bytes)


class DiskSpace(NamedTuple):
    """A file system: its size, and what an ordinary user may still take of it, in bytes and in inodes (files).

    ``files`` is 0 where a file system makes inodes as they are needed (btrfs): it can't run out of them.
    """

    size_bytes: int
    free_bytes: int
    files: int = 0
    free_files: int = 0


def disk_space(place: int | Path) -> DiskSpace:
    """Return the space of the file system that a descriptor or a path is on (statvfs(3))."""
    stats = os.statvfs(place)
    unit = stats.f_frsize
    return DiskSpace(stats.f_blocks * unit, stats.f_bavail * unit, stats.f_files, stats.f_favail)


def measured(measure: Callable[[], T], deleted: Callable[[], Space]) -> tuple[T, Space]:
    """Return what ``measure`` says of a disk, and what was deleted there and was not free yet then.

    It becomes free in other threads and processes meanwhile. Bytes that did so between the two would be in neither, and the
    disk would look fuller than it was before they were deleted.
    """
    for _ in range(_MOST_MEASURES):
        before, found = deleted(), measure()
        if deleted() == before:
            break
    return found, before
