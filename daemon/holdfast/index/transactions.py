"""Write transactions, and the space reserved for them on a full disk.

LMDB never overwrites a page that may still be read. To change one record it writes a few new pages, mostly in place of
older ones, sometimes at the end of the file. So the file is kept longer than what is used of it: reads, deletions and
evictions must be recorded even while the disk is full.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from holdfast.errors import IndexFullError, IndexUnwritableError

RESERVE_BYTES = 4 * 2**20
"""The reserve: a thousand pages. A change takes about five, and frees as many as soon as no older reader is left."""

_log = logging.getLogger("holdfast.index")


@contextmanager
def writing(environment: lmdb.Environment, database: lmdb._Database | None = None) -> Iterator[lmdb.Transaction[bytes]]:
    """Provide a write transaction, committed when the block ends. After ``IndexUnwritableError`` nothing has changed."""
    try:
        with environment.begin(db=database, write=True) as transaction:
            yield transaction
    except (lmdb.DiskError, lmdb.MapFullError):
        raise IndexFullError(
            "the disk of the store is full, and the index has no room left in it: free some disk space, or give the store "
            "a larger disk"
        ) from None
    except lmdb.Error as problem:
        if type(problem) is not lmdb.Error:  # it knows its own errors by name; what it has no name for comes from the disk
            raise
        raise IndexUnwritableError(f"the disk of the store takes no writes: {problem}; look at the kernel's log") from None


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
