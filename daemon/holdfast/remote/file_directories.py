"""Files and directories of a ``file://`` store, opened from its root and through no symbolic link.

Other users may be allowed to write below the root, and the daemon may do what they may not: a link that they plant, even in
place of a directory that is in use, must not lead it out of the store. Names are relative to the root, ``""`` is the root
itself; a link anywhere in one is ``NotADirectoryError``. The root's own path is the configuration's: links in it are
followed, and it is opened anew each time, because the disk that belongs there may be mounted later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from holdfast.system.syscalls import open_without_links

_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _ROOT | os.O_NOFOLLOW
_READABLE_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_below(root: str, name: str, flags: int) -> int:
    """Return a new descriptor of ``name``. ``flags`` create nothing. Raises ``OSError``."""
    root_fd = os.open(root, _ROOT)
    try:
        path = os.fsencode(name or ".")
        try:
            return open_without_links(root_fd, path, flags, beneath=True)
        except NotImplementedError:
            return walk(root_fd, path, flags)
    finally:
        os.close(root_fd)


def walk(root_fd: int, path: bytes, flags: int) -> int:
    """Open ``path`` as ``open_below`` does, one component at a time: without openat2(2). Raises ``OSError``."""
    *directories, last = path.split(b"/")
    fd = os.dup(root_fd)
    try:
        for name in directories:
            fd = _stepped(fd, os.open(name, _DIRECTORY, dir_fd=fd))
        return os.open(last, flags, dir_fd=fd)
    finally:
        os.close(fd)


@contextmanager
def directory_below(root: str, directory: str, *, readable: bool = False) -> Iterator[int]:
    """Yield an ``O_PATH`` descriptor of ``directory``, or one that can be listed and synced. Raises ``OSError``."""
    fd = open_below(root, directory, _READABLE_DIRECTORY if readable else _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories(root: str, directory: str) -> list[str]:
    """Make what is missing of ``directory``; return the directories that have got a name by that, which is not synced.

    Raises ``OSError``: ``FileNotFoundError`` if another process removes a part meanwhile.
    """
    changed: list[str] = []
    fd = os.open(root, _ROOT)
    try:
        above = ""
        for name in directory.split("/") if directory else ():
            try:
                child = os.open(name, _DIRECTORY, dir_fd=fd)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                changed.append(above)
                child = os.open(name, _DIRECTORY, dir_fd=fd)
            fd = _stepped(fd, child)
            above = f"{above}/{name}" if above else name
    finally:
        os.close(fd)
    return changed


def sync_directories(root: str, directories: Iterable[str]) -> None:
    """Make the names in ``directories`` durable. Raises ``OSError``."""
    for directory in directories:
        # one that was pruned meanwhile was empty
        with suppress(FileNotFoundError), directory_below(root, directory, readable=True) as fd:
            os.fsync(fd)


def _stepped(before: int, after: int) -> int:
    os.close(before)
    return after
