"""Which file it is: the identity of a file or directory of the store directory.

Everything that keeps something for a file (the index, the node table, notes for the next daemon) has it under a ``FileId``.
They are made here, from what the system says of a file, and nowhere else; those that were written down are read back. So a
raw inode number in the place of a ``FileId`` is an error of types, and what makes them differ has one place.

A store directory is one file system, so a file's id is its inode number: that is what it costs at run time, too. The index
of every store has these ids as keys.
"""

from __future__ import annotations

import os
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

listed_id = cast("Callable[[os.DirEntry[bytes] | os.DirEntry[str]], FileId]", os.DirEntry.inode)
"""The id of a file that a listing of its directory has."""
