"""Which file it is: the identity of a file or directory of the store directory.

Everything that keeps something for a file (the index, the node table, notes for the next daemon) has it under a ``FileId``.
They are made here, from what the system says of a file, and nowhere else; those that were written down are read back. So a
raw inode number in the place of a ``FileId`` is an error of types, and what makes them differ has one place.

On the store directory's own disk a file's id is its inode number. On another disk (``store.other_disks``) its upper bits are
the number of that disk, and the lower 56, which is what ext4 and XFS use, the inode number. A daemon with one disk pays
nothing for that: ``file_stat`` is ``os.stat`` until ``tell_apart`` is called. The index of every store has ids as keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NewType, Protocol, cast

FileId = NewType("FileId", int)

NO_FILE = FileId(0)
"""The id of no file: that of what exists only in the store."""

if TYPE_CHECKING:

    class FileStat(os.stat_result):  # type: ignore[misc]  # final, and this is no class at run time
        """The attributes of a file of the store directory, as the system tells them."""

        @property
        def st_ino(self) -> FileId:
            """The file's id."""
else:
    FileStat = os.stat_result


class _Stat(Protocol):
    def __call__(
        self, file: int | bytes | str, /, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> FileStat: ...


file_stat = cast(_Stat, os.stat)
"""``os.stat`` of a file of the store directory, by descriptor or by name."""

_Listed = Callable[["os.DirEntry[bytes] | os.DirEntry[str]"], FileId]
as_listed = cast(_Listed, os.DirEntry.inode)


def _ids_as_listed(_: int | bytes | str) -> _Listed:
    return as_listed


listed_ids: Callable[[int | bytes | str], _Listed] = _ids_as_listed
"""For a directory, by descriptor or path: a function that returns the id of a file from what a listing of it yields."""

MOST_DISKS = 62
"""The limit of numbers of other disks: ids from 2⁶² on are given by the daemon."""
_INODE_BITS = 56
disk_of = cast(Callable[[FileId], int], _INODE_BITS.__rrshift__)
"""Return the number of the disk that a file is on; 0 for the store directory's own. It is the number's own method: each
change of an entry calls it."""
_TIMES = ("st_atime", "st_mtime", "st_ctime")
_BY_NAME = ("st_blksize", "st_blocks", "st_rdev", *_TIMES, *(f"{time}_ns" for time in _TIMES))
"""The fields of ``os.stat_result`` that its sequence does not have, or has in seconds."""


def id_on(disk: int, inode: int) -> FileId:
    """Return the id of the file with this inode number on the disk with the number ``disk``."""
    return FileId(disk << _INODE_BITS | inode)


def first_id_on(disk: int) -> FileId:
    """Return the smallest id of the disk with the number ``disk``, which no file has."""
    return id_on(disk, 0)


def with_id(found: os.stat_result, file: FileId) -> FileStat:
    """Return the attributes ``found`` with this id."""
    mode, _, *others = found
    return FileStat((mode, file, *others), {name: getattr(found, name) for name in _BY_NAME})


def tell_apart(stat: _Stat, listed: Callable[[int | bytes | str], _Listed]) -> Callable[[], None]:
    """Let all of Holdfast use these for ``file_stat`` and ``listed_ids``; return a function that undoes it.

    Call it before the store directory is used. Modules have bound the two names when they were imported, so that they cost
    nothing where there is one disk; they are bound anew here.
    """
    before: tuple[object, object] = file_stat, listed_ids
    _bind(before, (stat, listed))
    return lambda: _bind((stat, listed), before)


def _bind(old: tuple[object, object], new: tuple[object, object]) -> None:
    for module in [module for name, module in sys.modules.items() if name.startswith("holdfast.")]:
        for name, was, becomes in zip(("file_stat", "listed_ids"), old, new, strict=True):
            if getattr(module, name, None) is was:
                setattr(module, name, becomes)
