"""Files and directories of a ``file://`` store, opened from its root and through no symbolic link.

Other users may be allowed to write below the root, and the daemon may do what they may not: a link that they plant, even in
place of a directory that is in use, must not lead it out of the store. Names are relative to the root, ``""`` is the root
itself; a link anywhere in one is ``NotADirectoryError``. The root's own path is the configuration's: links in it are
followed, and each request opens it anew, because the disk that belongs there may be mounted later. A request stays in the
root that it has opened, and a change asks at its end whether the path still leads there: while a disk is unmounted and
mounted, or the root is renamed and made anew, a change could end up where nobody finds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from holdfast.system.syscalls import open_without_links

_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _ROOT | os.O_NOFOLLOW
_READABLE_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: str) -> int:
    """Return a new descriptor of the root. Raises ``OSError``."""
    return os.open(path, _ROOT)


@contextmanager
def opened_root(path: str) -> Iterator[int]:
    """Yield a descriptor of the root. Raises ``OSError``."""
    root_fd = open_root(path)
    try:
        yield root_fd
    finally:
        os.close(root_fd)


def check_is_in_place(root_fd: int, path: str) -> None:
    """Raise ``OSError`` if ``path`` leads to another root than the open one, or to none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(os.fstat(root_fd), os.stat(path)):
            return
    raise OSError(errno.ESTALE, f"the directory {path} was replaced meanwhile")


def open_below(root_fd: int, name: str, flags: int) -> int:
    """Return a new descriptor of ``name``. ``flags`` create nothing. Raises ``OSError``."""
    path = os.fsencode(name or ".")
    try:
        return open_without_links(root_fd, path, flags, beneath=True)
    except NotImplementedError:
        return walk(root_fd, path, flags)


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
def directory_below(root_fd: int, directory: str, *, readable: bool = False) -> Iterator[int]:
    """Yield an ``O_PATH`` descriptor of ``directory``, or one that can be listed and synced. Raises ``OSError``."""
    fd = open_below(root_fd, directory, _READABLE_DIRECTORY if readable else _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def make_directories(root_fd: int, directory: str) -> list[str]:
    """Make what is missing of ``directory``; return the directories that have got a name by that, which is not synced.

    Raises ``OSError``: ``FileNotFoundError`` if another process removes a part meanwhile.
    """
    changed: list[str] = []
    fd = os.dup(root_fd)
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


def sync_directories(root_fd: int, directories: Iterable[str]) -> None:
    """Make the names in ``directories`` durable. Raises ``OSError``."""
    for directory in directories:
        # one that was pruned meanwhile was empty
        with suppress(FileNotFoundError), directory_below(root_fd, directory, readable=True) as fd:
            os.fsync(fd)


def _stepped(before: int, after: int) -> int:
    os.close(before)
    return after
