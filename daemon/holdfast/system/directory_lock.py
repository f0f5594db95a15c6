"""Directories that one process at a time may use."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock_directory(path: Path) -> int:
    """Return a descriptor of the directory at ``path`` that keeps others from locking it (flock(2)) until it is closed.

    Raises ``BlockingIOError`` if it is locked, and ``OSError``.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
