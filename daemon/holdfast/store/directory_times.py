"""The times of backing directories. What the cache does in one is no change of the directory that users see."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.errors import FileBusyError

_CLOCK_REALTIME_COARSE = 5  # linux/time.h: the clock from which file systems take their times
_STEP_NS = 1000
"""A microsecond: programs that keep times as floating-point numbers can still tell two such times of today apart."""
_MOST_KEPT = 100_000


class ImpliedTimes:
    """The times of a store's directories that have no backing directory, by path: ``since_ns`` for nearly all."""

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._kept: dict[bytes, int] = {}

    def __call__(self, path: bytes) -> int:
        """Return the time of the directory at ``path``."""
        return self._kept.get(path, self._since_ns)

    def keep(self, path: bytes, mtime_ns: int) -> None:
        """Keep the mtime of the backing directory at ``path``, which is removed to make room: users go on seeing it."""
        self._kept.pop(path, None)
        if mtime_ns != self._since_ns:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[path] = mtime_ns


@contextmanager
def keeping_mtime(directory_fd: int) -> Iterator[None]:
    """Keep the mtime of a directory over a change of its entries that users don't see."""
    before = os.stat(directory_fd)
    is_free = True
    try:
        yield
    except FileBusyError:  # the call goes on, and may have the directory's lock
        is_free = False
        raise
    finally:
        with suppress(OSError):  # the disk takes no more writes: the change itself says so, if it failed
            if is_free:
                _set_mtime(directory_fd, before, before.st_mtime_ns)


def advance_mtime(directory_fd: int) -> None:
    """Give a directory a later mtime, because users see other entries in it: the present, if that is later."""
    before = os.stat(directory_fd)
    now_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    with suppress(OSError):  # the disk takes no more writes
        _set_mtime(directory_fd, before, max(now_ns, before.st_mtime_ns + _STEP_NS))


def _set_mtime(directory_fd: int, before: os.stat_result, mtime_ns: int) -> None:
    os.utime(b"/proc/self/fd/%d" % directory_fd, ns=(before.st_atime_ns, mtime_ns))
