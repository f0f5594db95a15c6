"""Files in the page cache, and out of it."""

from __future__ import annotations

import os
from pathlib import Path


def read(path: Path) -> None:
    """Bring the file into the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(2**20):
            pass


def drop(path: Path) -> None:
    """Take the file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
