"""Files that are written whole or not at all, and are on the disk then."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def new_name(name: str) -> str:
    """Return the name under which ``write_whole`` writes a file before it is whole; a crash may leave that behind."""
    return f".new-{name}"


def write_whole(file: Path, lines: Iterable[bytes]) -> None:
    """Replace ``file``, and return when a power cut does not undo it. Raises ``OSError``, and what ``lines`` do."""
    new = file.with_name(new_name(file.name))
    try:
        with new.open("wb") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    directory_fd = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)
