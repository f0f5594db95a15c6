"""The directories of a ``file://`` store, reached one component at a time from its root and through no symbolic link.

Other users may be allowed to write below the root, and the daemon may do what they may not: a link that they plant, even in
place of a directory that is in use, must not lead it out of the store. Directories are relative to the root, ``""`` is the
root itself; a link in place of one is ``NotADirectoryError``. The root's own path is the configuration's: links in it are
followed, and it is opened anew each time, because the disk that belongs there may be mounted later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _ROOT | os.O_NOFOLLOW


@contextmanager
def directory_below(root: str, directory: str) -> Iterator[int]:
    """Yield an ``O_PATH`` descriptor of ``directory``. Raises ``OSError``."""
    fd = os.open(root, _ROOT)
    try:
        for name in _components(directory):
            fd = _stepped(fd, os.open(name, _BELOW, dir_fd=fd))
        yield fd
    finally:
        os.close(fd)


@contextmanager
def readable_directory(root: str, directory: str) -> Iterator[int]:
    """Yield a descriptor of ``directory`` that can be listed and synced. Raises ``OSError``."""
    with directory_below(root, directory) as place_fd:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories(root: str, directory: str) -> list[str]:
    """Make what is missing of ``directory``; return the directories to be synced once a name has been added to it.

    Raises ``OSError``: ``FileNotFoundError`` if another process removes a part meanwhile.
    """
    changed = [directory]
    fd = os.open(root, _ROOT)
    try:
        above = ""
        for name in _components(directory):
            try:
                child = os.open(name, _BELOW, dir_fd=fd)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                changed.append(above)
                child = os.open(name, _BELOW, dir_fd=fd)
            fd = _stepped(fd, child)
            above = f"{above}/{name}" if above else name
    finally:
        os.close(fd)
    return changed


def sync_directories(root: str, directories: Iterable[str]) -> None:
    """Make the names in ``directories`` durable. Raises ``OSError``."""
    for directory in directories:
        with suppress(FileNotFoundError), readable_directory(root, directory) as fd:  # pruned meanwhile, so it was empty
            os.fsync(fd)


def _components(directory: str) -> list[str]:
    return directory.split("/") if directory else []


def _stepped(before: int, after: int) -> int:
    os.close(before)
    return after
