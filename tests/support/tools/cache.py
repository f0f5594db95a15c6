"""Where ``./run`` and the tests keep what is slow to get or make, outside of the checkout."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """Return ``$HOLDFAST_CACHE``, by default ``~/.cache/holdfast``."""
    home_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HOLDFAST_CACHE") or Path(home_cache, "holdfast"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock ``path`` in this block: in it, what another session may have made meanwhile is looked for again.

    Where the cache can't be written, as in a guest on another kernel, nobody makes anything there, and nothing is locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as problem:
        if problem.errno != errno.EROFS:
            raise
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
