"""Pages of files in the page cache: how many, and away with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def cached_pages(path: Path) -> int:
    """Return how many pages of a file are in the page cache."""
    command: list[str | Path] = ["fincore", "--noheadings", "--output=PAGES", path]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def forget(path: Path) -> None:
    """Let the kernel forget what it has of a file, so that it must read it from the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
