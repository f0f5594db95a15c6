"""A fault about what files are known by: their ids are not their inode numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from holdfast.kernel import Connection
from holdfast.system import file_id
from holdfast.system.file_id import FileId, FileStat
from tests.support.daemons.faults.switches import replace

OTHER_DISK = 1 << 56
"""The bit that this daemon's ids have beside the inode number."""
_TIMES = ("st_atime", "st_mtime", "st_ctime")
_BY_NAME = ("st_blksize", "st_blocks", "st_rdev", *_TIMES, *(f"{time}_ns" for time in _TIMES))
"""The fields of ``os.stat_result`` that its sequence does not have."""


def ids_beside_inode_numbers() -> None:
    """Give each file an id that is not its inode number, as one on a second disk would need.

    Listings that the kernel fills show inode numbers, so this daemon makes all of them in Python.
    """
    steps: dict[str, Callable[..., object]] = {"file_stat": _file_stat, "listed_id": _listed_id}
    for module in [module for name, module in sys.modules.items() if name.startswith("holdfast.")]:
        for name, step in steps.items():
            if getattr(module, name, None) is getattr(file_id, name) and module is not file_id:
                replace(module, name, step)
    for name, step in steps.items():  # for what is imported later
        replace(file_id, name, step)

    def are_made_in_python(*_: object) -> None:
        return None

    replace(Connection, "entries", are_made_in_python)


def _file_stat(file: int | bytes | str, /, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> FileStat:
    found = os.stat(file, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    mode, inode, *others = found
    return FileStat((mode, int(inode) | OTHER_DISK, *others), {name: getattr(found, name) for name in _BY_NAME})


def _listed_id(entry: os.DirEntry[bytes] | os.DirEntry[str]) -> FileId:
    return FileId(entry.inode() | OTHER_DISK)
