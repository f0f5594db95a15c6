"""A fault about what files are known by: their ids are not their inode numbers."""

from __future__ import annotations

import os

from holdfast.kernel import Connection
from holdfast.system.file_id import FileId, FileStat, tell_apart, with_id
from tests.support.daemons.faults.switches import replace

OTHER_DISK = 1 << 56
"""The bit that this daemon's ids have beside the inode number."""


def ids_beside_inode_numbers() -> None:
    """Give each file an id that is not its inode number, as one on another disk has.

    Listings that the kernel fills show inode numbers, so this daemon makes all of them in Python.
    """
    tell_apart(_file_stat, lambda _: _listed_id)

    def are_made_in_python(*_: object) -> None:
        return None

    replace(Connection, "entries", are_made_in_python)


def _file_stat(file: int | bytes | str, /, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> FileStat:
    found = os.stat(file, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    return with_id(found, FileId(found.st_ino | OTHER_DISK))


def _listed_id(entry: os.DirEntry[bytes] | os.DirEntry[str]) -> FileId:
    return FileId(entry.inode() | OTHER_DISK)
