"""The pages of the index's file: the space reserved for changes, and the pages that this process has mapped.

LMDB never overwrites a page that may still be read. To change one record it writes a few new pages, mostly in place of
older ones, sometimes at the end of the file. So the file is kept longer than what is used of it: reads, deletions and
evictions must be recorded even while the disk is full.

LMDB reads through a map of its file. Each page that is looked at stays mapped, so that after a scan of a million entries the
daemon seems to use hundreds of MiB, which are the kernel's page cache. Changes do so too: each takes free pages from any
place in the file, and around a page that is read the kernel maps fifteen others. madvise(2) with MADV_DONTNEED takes them
out of the process; the page cache keeps them, and the next look costs a minor fault.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
from pathlib import Path

import lmdb

RESERVE_BYTES = 4 * 2**20
"""The reserve: a thousand pages. A change takes about five, and frees as many as soon as no older reader is left."""
MOST_MAPPED_BYTES = 32 << 20
_CHANGES = 256
"""The number of changes after which the pages are counted again. At four pages each, with those around them, that is 64 MiB
at most."""
_SHARED = 2
"""The field of /proc/self/statm for mapped files (proc_pid_statm(5)). It also counts shared memory; the daemon has none."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_log = logging.getLogger("holdfast.index")


def keep_reserve(environment: lmdb.Environment, file: Path) -> bool:
    """Extend the file to ``RESERVE_BYTES`` beyond its used part, if half of that is used up; say whether half is there.

    A disk that is full, or takes no writes, is no error.
    """
    used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if file.stat().st_size - used_bytes >= RESERVE_BYTES // 2:
        return True
    try:
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, used_bytes, RESERVE_BYTES)
        finally:
            os.close(fd)
    except OSError as problem:
        _log.warning("can't keep room for the index in %s: %s", file, problem.strerror)
        return False
    return True


class MappedPages:
    """The map of ``file``, which LMDB has open in this process. It has no private pages: LMDB writes by pwrite(2)."""

    def __init__(self, file: Path) -> None:
        self._begin, self._length_bytes = _place_of_map(file)
        self._others_bytes = resident_file_bytes()
        self._changes = 0

    def changed(self) -> None:
        """Count a change of the index; after many, give back what they have mapped."""
        self._changes += 1
        if self._changes >= _CHANGES:
            self._changes = 0
            self.release_many()

    def release_many(self) -> None:
        """Give the pages back if there are more than ``MOST_MAPPED_BYTES`` of them. Safe in any thread, also in a scan."""
        if not self._length_bytes:
            return
        try:
            are_many = resident_file_bytes() > self._others_bytes + MOST_MAPPED_BYTES
        except OSError as problem:  # no descriptor is free, for example; it is asked again in a moment
            _log.debug("can't see how many pages of the index are in memory: %s", problem)
            return
        if are_many:
            self._release()

    def forget(self) -> None:
        """Leave the map's address alone from now on: the map goes, and something else may be mapped there."""
        self._length_bytes = 0

    def _release(self) -> None:
        if _libc.madvise(self._begin, self._length_bytes, mmap.MADV_DONTNEED) != 0:
            _log.warning("can't give back the pages of the index: %s", os.strerror(ctypes.get_errno()))
            self.forget()


def resident_file_bytes() -> int:
    """Return how much of the files that this process has mapped is in its memory."""
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 100).split()[_SHARED]) * mmap.PAGESIZE
    finally:
        os.close(fd)


def _place_of_map(file: Path) -> tuple[int, int]:
    """Return the address and the length of the map of ``file``; 0 and 0 if there is none, or if it is writable."""
    end = f" {os.path.realpath(file)}\n"
    with open("/proc/self/maps") as lines:
        for line in lines:
            if line.endswith(end):
                place, rights, _ = line.split(maxsplit=2)
                first, last = (int(address, 16) for address in place.split("-"))
                return (first, last - first) if rights == "r--s" else (0, 0)
    return 0, 0
