"""Many small files in one directory, as the rows about names, memory and stalls want them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

CONTENT = b"x" * 100


def names(count: int) -> list[str]:
    """Return the names of so many files."""
    return [f"file-{number:06}" for number in range(count)]


def create(directory: Path, wanted: Iterable[str], content: bytes = CONTENT) -> None:
    """Create the files, which must not be there; this is timed, so it does nothing else."""
    for name in wanted:
        fd = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)
