"""Write transactions, and the room that they find on a full disk.

LMDB never overwrites a page that may still be read: to change one record it writes a few pages anew, mostly where older
ones were, sometimes at the end. So the end of the file is kept ahead of what is used: what is read, deleted and evicted
while the disk is full has to be noted, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from holdfast.errors import IndexFullError

RESERVE_BYTES = 4 * 2**20
"""A thousand pages; a change takes about five, and gives back as many as soon as no reader is older."""

_log = logging.getLogger("holdfast.index")


@contextmanager
def writing(environment: lmdb.Environment, database: lmdb._Database | None = None) -> Iterator[lmdb.Transaction[bytes]]:
    """Give a write transaction, done when the block ends. Raises ``IndexFullError``; nothing has changed then."""
    try:
        with environment.begin(db=database, write=True) as transaction:
            yield transaction
    except (lmdb.DiskError, lmdb.MapFullError):
        raise IndexFullError(
            "the disk of the store is full, and the index has no room left in it: free some disk space, or give the store "
            "a larger disk"
        ) from None


def keep_reserve(environment: lmdb.Environment, file: Path) -> None:
    """Let the file be ``RESERVE_BYTES`` longer than what is used of it, if half of that is gone. A full disk is no error."""
    used_bytes = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if file.stat().st_size - used_bytes >= RESERVE_BYTES // 2:
        return
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, used_bytes, RESERVE_BYTES)
    except OSError as problem:
        _log.warning("can't keep room for the index in %s: %s", file, problem.strerror)
    finally:
        os.close(fd)
