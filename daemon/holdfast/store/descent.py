"""Going through a directory tree of any depth, by iteration and with two descriptors at most.

Users make trees that are deeper than Python's stack, than the number of descriptors and than PATH_MAX. So a walk opens one
directory at a time from the one above it, and returns by ``..``. It never follows a symbolic link, and is not led away by a
directory that is moved meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.system.file_id import FileId, file_stat, listed_ids

Unreadable = Callable[[bytes, OSError], object]
"""Is told the path of what a walk leaves out because the disk can't read it, below where the walk began, and the error."""

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(NamedTuple):
    """A name in a directory, with its inode number."""

    name: bytes
    inode: FileId
    is_directory: bool


class _Level(NamedTuple):
    inode: FileId
    left: list[bytes]
    """Subdirectories that were not visited yet."""


_BAD_BLOCKS = (errno.EIO, errno.EUCLEAN)
"""The errors for what a file system has lost, as opposed to a disk that is gone or answers no more."""


def _any(_: Entry) -> bool:
    return True


def _open_child(directory_fd: int, name: bytes) -> int:
    return os.open(name, DIRECTORY, dir_fd=directory_fd)


def descend(
    top_fd: int,
    deepest: int | None = None,
    enters: Callable[[Entry], bool] = _any,
    opened: Callable[[int, bytes], int] = _open_child,
    unreadable: Unreadable | None = None,
) -> Iterator[tuple[list[bytes], int, list[Entry]]]:
    """Yield every directory from ``top_fd`` down: the names that lead to it, its ``O_PATH`` descriptor, its entries.

    Names and descriptor are valid until the next step. Directories more than ``deepest`` levels down, those that ``enters``
    denies, those that vanish and those that this user may not read are left out. ``opened`` opens a subdirectory. Waits for
    the disk: call it in a thread. Raises ``OSError``; with ``unreadable``, what is on bad blocks is left out.
    """
    fd = os.open(b".", DIRECTORY, dir_fd=top_fd)
    trail: list[bytes] = []
    levels: list[_Level] = []
    try:
        while True:
            try:
                entries = _entries(fd)
            except OSError as problem:
                leave_out(b"/".join(trail), problem, unreadable)
                entries = []
            subdirectories = [entry.name for entry in entries if entry.is_directory and enters(entry)]
            levels.append(_Level(file_stat(fd).st_ino, subdirectories if deepest is None or len(trail) < deepest else []))
            yield trail, fd, entries
            child = None
            while child is None:
                while not levels[-1].left:
                    del levels[-1]
                    if not levels:
                        return
                    del trail[-1]
                    fd = _returned(fd, top_fd, trail, levels, opened)
                name = levels[-1].left.pop()
                try:
                    child = opened(fd, name)
                except (FileNotFoundError, NotADirectoryError, PermissionError):
                    continue
                except OSError as problem:
                    leave_out(b"/".join([*trail, name]), problem, unreadable)
            os.close(fd)
            fd = child
            trail.append(name)
    finally:
        os.close(fd)


def _returned(fd: int, top_fd: int, trail: list[bytes], levels: list[_Level], opened: Callable[[int, bytes], int]) -> int:
    """Exchange the descriptor of a directory for that of the one above, which is at ``trail``.

    If somebody has moved or closed the directory, the path is walked from the top again; what is gone is left out.
    """
    above = -1
    with suppress(PermissionError):
        above = os.open(b"..", DIRECTORY, dir_fd=fd)
    if above == -1 or file_stat(above).st_ino != levels[-1].inode:
        if above != -1:
            os.close(above)
        above = os.open(b".", DIRECTORY, dir_fd=top_fd)
        for depth, name in enumerate(trail):
            try:
                child = opened(above, name)
            except OSError:
                del trail[depth:], levels[depth + 1 :]
                break
            os.close(above)
            above = child
    os.close(fd)
    return above


def _entries(fd: int) -> list[Entry]:
    with suppress(FileNotFoundError, PermissionError), os.scandir(f"/proc/self/fd/{fd}") as entries:
        listed_id = listed_ids(fd)
        return [Entry(os.fsencode(one.name), listed_id(one), one.is_dir(follow_symlinks=False)) for one in entries]
    return []


def leave_out(path: bytes, problem: OSError, unreadable: Unreadable | None) -> None:
    """Tell of what is left out because its blocks are bad. Raises the error if it says anything else, or nobody is told."""
    if unreadable is None or problem.errno not in _BAD_BLOCKS:
        raise problem
    unreadable(path, problem)
