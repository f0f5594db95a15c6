"""Deleting directory trees of any depth and width, whatever their owners have put into them.

A directory with something in it is moved up beside the one that holds it, and emptied in its turn. So two descriptors are
enough for any depth, no path is ever long, and a crash leaves trees that the next removal continues. No link is followed.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat as stat_module
from collections.abc import Callable, Iterator
from contextlib import suppress

from holdfast.system.syscalls import RENAME_NOREPLACE, rename_with_flags

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


Unlink = Callable[[bytes, int], None]
"""Removes the name of a file in the directory with this descriptor."""


def unlink(name: bytes, directory_fd: int) -> None:
    """unlinkat(2)."""
    os.unlink(name, dir_fd=directory_fd)


def remove(directory_fd: int, name: bytes, unlink: Unlink = unlink) -> None:
    """Delete the entry ``name`` of a directory, and everything below it, files by ``unlink``.

    The directory must be Holdfast's own: parts of the tree show up in it meanwhile. Raises ``OSError`` for what can't be
    deleted; all else is deleted then.
    """
    problem: OSError | None = None
    left = [name]
    spare = _spare_names(name)
    while left:
        current = left.pop()
        try:
            _remove_one(directory_fd, current, left, spare, unlink)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = error
    if problem is not None:
        raise problem


def _remove_one(directory_fd: int, name: bytes, left: list[bytes], spare: Iterator[bytes], unlink: Unlink) -> None:
    if not stat_module.S_ISDIR(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
        unlink(name, directory_fd)
        return
    if os.geteuid() != 0:
        with suppress(OSError):  # root needs no permission
            os.chmod(name, 0o700, dir_fd=directory_fd)
    fd = os.open(name, _READ, dir_fd=directory_fd)
    try:
        with os.scandir(fd) as entries:
            found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_directory in found:
            if is_directory:
                _remove_directory(fd, child, directory_fd, left, spare)
            else:
                unlink(child, fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=directory_fd)


def _remove_directory(fd: int, name: bytes, top_fd: int, left: list[bytes], spare: Iterator[bytes]) -> None:
    """Delete a directory if it is empty; else move it up, to be emptied later."""
    try:
        os.rmdir(name, dir_fd=fd)
        return
    except OSError as problem:
        if problem.errno not in _NOT_EMPTY:
            raise
    while True:
        moved = next(spare)
        with suppress(FileExistsError):
            rename_with_flags(fd, name, top_fd, moved, RENAME_NOREPLACE)
            left.append(moved)
            return


def _spare_names(name: bytes) -> Iterator[bytes]:
    """Yield names for parts of the tree ``name``."""
    stem = name[:200]
    return (b"%s.%d" % (stem, number) for number in itertools.count(1))
