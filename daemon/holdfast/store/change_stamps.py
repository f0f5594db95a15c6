"""Stamps: size and mtime of a file, taken so that any write after it changes them.

Writes that bypass the daemon are detected by these two alone. On Linux 6.13 and later, a write gives a file whose times were
read since the last write a new, distinct time ("multigrain timestamps"; ext4, XFS, btrfs, tmpfs). Older kernels, and other
file systems to this day, give it the time of the last tick (1 to 10 ms), so two writes within one tick can't be told apart.
There, a file with the time of the current tick is given an older one, which no write can give it again; a time that a user
has set stays, and the bytes are compared instead (``fs.file_io.passthrough``). Which of the two applies is tested, not
derived from versions.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

Stamp = tuple[int, int]
_OF_NO_FILE = (-1, -1)
_CLOCK_REALTIME_COARSE = 5  # linux/time.h: the time of the last tick, which Linux uses for files
LONGEST_TICK_NS = 10_000_000
"""The length of a tick with CONFIG_HZ=100. The times of files are behind the clock by less than this."""
_TRIES = 20
"""The number of test writes. They take microseconds, so all but one or two fall into one tick."""


class Stamps:
    """Takes stamps of files in one store. ``are_fine``: the file system gives any two writes different times."""

    def __init__(self, *, are_fine: bool) -> None:
        self.are_fine = are_fine
        self._numbers = itertools.count()

    @classmethod
    def tried(cls, directory_fd: int) -> Stamps:
        """Test this with a nameless file in the directory. If that fails, as on a full disk, assume coarse times."""
        times = set()
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
            with open(fd, "wb", buffering=0) as file:
                for _ in range(_TRIES):
                    file.write(b"x")
                    times.add(os.fstat(fd).st_mtime_ns)
        except OSError:
            return cls(are_fine=False)
        return cls(are_fine=len(times) == _TRIES)

    def take_before_writes(self, fd: int, is_set: Callable[[int], bool] = lambda _: False) -> Stamp:
        """Return size and mtime in nanoseconds of a file that nobody reads or sends now; later writes change one of them.

        An empty file, as each new one is, keeps its time: whatever leaves bytes in it changes its size.
        """
        stat = os.fstat(fd)
        return self.take(fd, is_set) if stat.st_size and not self.are_fine else stamp_of(stat)

    def take(self, fd: int, is_set: Callable[[int], bool] = lambda _: False) -> Stamp:
        """Return size and mtime in nanoseconds of a file; any later write will change one of them, if it ``shows_all``.

        For a file that is being written without a pause, it may be a stamp that no file has, so that it counts as changed.
        ``is_set`` says whether a user has set this mtime, which stays then.
        """
        stat = os.fstat(fd)
        for _ in range(_TRIES):
            if self.shows_all(stamp_of(stat)) or is_set(stat.st_mtime_ns):
                return stamp_of(stat)
            older_ns = stat.st_mtime_ns - LONGEST_TICK_NS - next(self._numbers) % LONGEST_TICK_NS
            os.utime(fd, ns=(stat.st_atime_ns, older_ns))
            stat = os.fstat(fd)
        return _OF_NO_FILE

    def shows_all(self, stamp: Stamp) -> bool:
        """Say whether each write from now on will change this stamp of a file."""
        if self.are_fine:
            return True
        now_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        return not now_ns <= stamp[1] < now_ns + LONGEST_TICK_NS


def stamp_of(stat: os.stat_result) -> Stamp:
    """Return the stamp that a file with these attributes has."""
    return stat.st_size, stat.st_mtime_ns
