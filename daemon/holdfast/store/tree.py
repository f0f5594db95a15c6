"""The backing tree: real directories, real files, real hard links, in the shape of the mount.

Paths here are bytes relative to the tree, without a leading slash; ``b""`` is the tree itself. They are walked one
component at a time from the tree's own descriptor, never following a symbolic link, so that nothing in the tree can
lead outside it. Must not know: zones, objects, nodes.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Iterator

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """Access to the backing tree below the directory descriptor ``root_fd``, which stays the caller's."""

    def __init__(self, root_fd: int) -> None:
        self.root_fd = root_fd

    def open_child(self, directory_fd: int, name: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the subdirectory ``name``. Raises ``OSError``."""
        return os.open(name, _DIRECTORY, dir_fd=directory_fd)

    def open_directory(self, path: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the directory at ``path``. Raises ``OSError``."""
        fd = os.open(b".", _DIRECTORY, dir_fd=self.root_fd)
        for name in path.split(b"/") if path else ():
            try:
                child = self.open_child(fd, name)
            finally:
                os.close(fd)
            fd = child
        return fd

    def make_directories(self, path: bytes, mode: int, uid: int, gid: int) -> int:
        """Create what is missing of ``path`` with this mode and owner (-1: the parent's); return its descriptor."""
        fd = os.open(b".", _DIRECTORY, dir_fd=self.root_fd)
        for name in path.split(b"/") if path else ():
            try:
                child = self._open_or_make(fd, name, mode, uid, gid)
            finally:
                os.close(fd)
            fd = child
        return fd

    def stat(self, path: bytes) -> os.stat_result:
        """Lstat of ``path``. Raises ``OSError``."""
        parent, _, name = path.rpartition(b"/")
        fd = self.open_directory(parent)
        try:
            return os.stat(name or b".", dir_fd=fd, follow_symlinks=False)
        finally:
            os.close(fd)

    def walk(self, path: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield ``(path, stat)`` of everything below the directory at ``path`` that is not a directory.

        What vanishes meanwhile is left out. It waits for the disk: call it in a thread.
        """
        try:
            fd = self.open_directory(path)
        except FileNotFoundError:
            return
        subdirectories: list[bytes] = []
        try:
            for name in os.listdir(f"/proc/self/fd/{fd}".encode()):
                try:
                    stat = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                child = path + b"/" + name if path else name
                if stat_module.S_ISDIR(stat.st_mode):
                    subdirectories.append(child)
                else:
                    yield child, stat
        finally:
            os.close(fd)
        for child in subdirectories:
            yield from self.walk(child)

    def remove_empty_directories(self, path: bytes) -> list[tuple[bytes, int]]:
        """Remove the directory at ``path`` and those below it where empty; return paths and inodes, deepest first."""
        gone: list[tuple[bytes, int]] = []
        parent, _, name = path.rpartition(b"/")
        try:
            fd = self.open_directory(path)
        except FileNotFoundError:
            return gone
        try:
            inode = os.fstat(fd).st_ino
            for child in os.listdir(f"/proc/self/fd/{fd}".encode()):
                if stat_module.S_ISDIR(os.stat(child, dir_fd=fd, follow_symlinks=False).st_mode):
                    gone += self.remove_empty_directories(path + b"/" + child)
        finally:
            os.close(fd)
        parent_fd = self.open_directory(parent)
        try:
            os.rmdir(name, dir_fd=parent_fd)
            gone.append((path, inode))
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise
        finally:
            os.close(parent_fd)
        return gone

    def _open_or_make(self, directory_fd: int, name: bytes, mode: int, uid: int, gid: int) -> int:
        try:
            return self.open_child(directory_fd, name)
        except FileNotFoundError:
            os.mkdir(name, mode, dir_fd=directory_fd)
            child = self.open_child(directory_fd, name)
            if os.geteuid() == 0:
                above = os.stat(directory_fd)
                owner = above.st_uid if uid < 0 else uid, above.st_gid if gid < 0 else gid
                os.chown(name, *owner, dir_fd=directory_fd, follow_symlinks=False)
            return child
