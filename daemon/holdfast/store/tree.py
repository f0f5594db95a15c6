"""The backing tree: real directories, real files, real hard links, in the shape of the mount.

Paths here are bytes relative to the tree, without a leading slash; ``b""`` is the tree itself. They are walked from the
tree's own descriptor, never following a symbolic link or ``..``, so nothing in the tree can lead outside it. Must not know:
zones, objects, nodes.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TypeVar

from holdfast.store.descent import DIRECTORY, Unreadable, descend, leave_out
from holdfast.store.descent import Entry as DirectoryEntry
from holdfast.store.directory_times import ImpliedTimes, keeping_mtime
from holdfast.store.held_directories import HeldDirectories
from holdfast.store.space import DiskSpace, Space
from holdfast.system.file_id import NO_FILE, FileId, FileStat, file_stat
from holdfast.system.syscalls import open_without_links

_DEEPEST_WALK = 1024
_Step = TypeVar("_Step")
_PART_BYTES = 4000
"""The longest part of a path that one system call gets (PATH_MAX is 4,096)."""
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
"""The errors of rmdir(2) for a directory that is not empty."""
_NO_NAMES = frozenset({b"", b".", b".."})


class Tree:
    """Access to the backing tree below the directory descriptor ``root_fd``, which the caller owns."""

    is_spread = False
    """True if directories may be on other disks than the root (``store.spread_tree``)."""

    def __init__(self, root_fd: int, held: HeldDirectories | None = None) -> None:
        self.root_fd = root_fd
        self.held = held if held is not None else HeldDirectories()

    def open_child(self, directory_fd: int, name: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the subdirectory ``name``. Raises ``OSError``."""
        return os.open(name, DIRECTORY, dir_fd=directory_fd)

    # --- what differs where directories are on other disks (``store.spread_tree``) -------------------------------------

    def anchor(self, path: bytes) -> tuple[int, bytes]:
        """Return a descriptor of the tree's own, and the path from there, by which the system finds what is at ``path``."""
        return self.root_fd, path

    def path_of(self, directory_fd: int) -> bytes | None:
        """Return the path of a directory; None if it is not in the tree. Raises ``OSError``."""
        root, path = (os.readlink(b"/proc/self/fd/%d" % fd) for fd in (self.root_fd, directory_fd))
        return path[len(root) + 1 :] if path == root or path.startswith(root + b"/") else None

    def lists_ids(self, directory: FileId) -> bool:
        """Say whether what the system lists as the inode numbers in a directory are ids."""
        del directory
        return True

    def disk_fd(self, directory: FileId) -> int:
        """Return a descriptor of the tree's own on the disk that a directory is on."""
        del directory
        return self.root_fd

    def disk_number(self, directory: FileId) -> int:
        """Return the number of the disk that a file, or what is in a directory, is on; 0 for the first."""
        del directory
        return 0

    def disk_at(self, path: bytes) -> int:
        """Return the number of the disk that what is at ``path`` is on, or would be."""
        del path
        return 0

    def place_on_a_disk(self, parent_fd: int, path: bytes, reserve: Callable[[DiskSpace], Space]) -> None:
        """Choose a disk for the working directory at ``path``, new and empty, in the directory ``parent_fd``.

        ``reserve`` returns what is kept free of a disk.
        """

    def spread_partitions(
        self, partition_of: Callable[[bytes], bytes | None], reserve: Callable[[DiskSpace], Space]
    ) -> None:
        """From now on, spread the new directories of partitions over all disks.

        ``partition_of`` returns the path of the partition's directory that a path is, or lies in; None if that is none.
        """

    def place_partition(self, parent_fd: int, path: bytes) -> None:
        """Choose a disk for the directory at ``path``, new and empty, if it is that of a partition and these are spread."""

    def keep_rights(self, directory: FileId) -> None:
        """Note owner and mode of a directory, which have changed, so that they outlive the disk that it is on."""

    def is_placed_below(self, path: bytes) -> bool:
        """Say whether a directory at or below ``path`` is on another disk than the one above it."""
        del path
        return False

    def workdirs_on(self, disk: int) -> list[bytes]:
        """Return the paths of the working directories on the disk with this number, which is not the first."""
        del disk
        return []

    def partitions_on(self, disk: int) -> list[bytes]:
        """Return the paths of the partitions' directories on the disk with this number, which is not the first."""
        del disk
        return []

    def remove_directory(self, parent_fd: int, name: bytes) -> None:
        """rmdir(2). Raises ``OSError``."""
        os.rmdir(name, dir_fd=parent_fd)

    def leaving(self, directory: FileId) -> AbstractContextManager[None]:
        """Return a block in which a directory, with what is in it, leaves the tree. It raises ``OSError``."""
        del directory
        return nullcontext()

    def has_failed(self, path: bytes) -> bool:
        """Say whether what is at ``path`` is on a disk that has failed or is not there."""
        del path
        return False

    def has_lost(self, file: FileId) -> bool:
        """Say whether a file is on a disk that has failed or is not there."""
        del file
        return False

    # -------------------------------------------------------------------------------------------------------------------

    def system_path(self, path: bytes) -> bytes:
        """Return a path by which the system finds the file at ``path``, if nobody has put a symbolic link on the way."""
        return b"/proc/self/fd/%d/%s" % self.anchor(path)

    def open_directory(self, path: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the directory at ``path``. Raises ``OSError``, with EBUSY if it is held."""
        if self.held.calls:
            self.held.check(path)
        return self.open_below(self.root_fd, path)

    def open_below(self, directory_fd: int, path: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the directory at ``path`` below another one. Raises ``OSError``.

        No symbolic link is followed. A path of thousands of levels takes some calls, not one for each.
        """
        _components(path)
        if 0 < len(path) <= _PART_BYTES:  # nearly always
            return self._open_part(directory_fd, path)
        return _last_of(directory_fd, list(_parts(path)), self._open_part)

    def _open_part(self, directory_fd: int, path: bytes) -> int:
        if b"/" not in path:
            return self.open_child(directory_fd, path)
        try:
            return open_without_links(directory_fd, path, DIRECTORY)
        except NotImplementedError:
            return _last_of(directory_fd, path.split(b"/"), self.open_child)

    def open_file(self, path: bytes) -> int:
        """Return a new descriptor, for reading, of the file at ``path``; never waits for a FIFO. Raises ``OSError``.

        Reading does not change the time of the last access, if this user may prevent that: it is no access by a user.
        """
        parent, _, name = path.rpartition(b"/")
        directory_fd = self.open_directory(parent)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(name, flags | os.O_NOATIME, dir_fd=directory_fd)
        except PermissionError:
            return os.open(name, flags, dir_fd=directory_fd)
        finally:
            os.close(directory_fd)

    def make_directories(self, path: bytes, mode: int, uid: int, gid: int, *, since: ImpliedTimes | None = None) -> int:
        """Create the missing parts of ``path`` with this mode and owner (-1: the parent's); return its descriptor.

        As with mkdir(2), the set-group-id bit of the directory above is inherited. With ``since`` users see these
        directories already: the new ones get the mtimes that they have, and the one above keeps its own. Raises ``OSError``.
        """
        names = _components(path)
        if self.held.calls:
            self.held.check(path)
        with suppress(FileNotFoundError):  # nearly always they are there, and need one look together
            return self.open_below(self.root_fd, path)
        return _last_of(self.root_fd, range(len(names)), partial(self._open_or_make, names, mode, uid, gid, since))

    def stat(self, path: bytes) -> FileStat:
        """Return the lstat of ``path``. Raises ``OSError``."""
        parent, _, name = path.rpartition(b"/")
        fd = self.open_directory(parent)
        try:
            return file_stat(name or b".", dir_fd=fd, follow_symlinks=False)
        finally:
            os.close(fd)

    def inode(self, path: bytes) -> FileId:
        """Return the inode number of the file at ``path``; 0 if there is none. Raises ``OSError``."""
        try:
            return self.stat(path).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return NO_FILE

    def walk(
        self,
        path: bytes,
        *,
        directories: bool = False,
        is_wanted: Callable[[bytes], bool] = lambda _: True,
        unreadable: Unreadable | None = None,
    ) -> Iterator[tuple[bytes, FileStat]]:
        """Yield ``(path, stat)`` of everything below the directory at ``path``, including directories only if asked for.

        What is not wanted, by its path, costs no stat.
        Files that vanish meanwhile are left out, and those more than 1,024 levels down, which no store can keep. It waits
        for the disk: call it in a thread. Raises ``OSError``; with ``unreadable``, what is on bad blocks is left out.
        """
        try:
            top_fd = self.open_directory(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return
        except OSError as problem:
            leave_out(path, problem, unreadable)
            return
        try:
            below = unreadable and (lambda name, problem: unreadable(b"/".join(filter(None, (path, name))), problem))
            for trail, fd, entries in self.descend(top_fd, _DEEPEST_WALK, unreadable=below):
                above = b"/".join([path, *trail] if path else trail)
                for entry in entries:
                    child = above + b"/" + entry.name if above else entry.name
                    if (directories or not entry.is_directory) and is_wanted(child):
                        try:
                            stat = file_stat(entry.name, dir_fd=fd, follow_symlinks=False)
                        except (FileNotFoundError, PermissionError):
                            continue
                        except OSError as problem:
                            leave_out(child, problem, unreadable)
                        else:
                            yield child, stat
        finally:
            os.close(top_fd)

    def descend(
        self,
        top_fd: int,
        deepest: int | None = None,
        enters: Callable[[DirectoryEntry], bool] | None = None,
        unreadable: Unreadable | None = None,
    ) -> Iterator[tuple[list[bytes], int, list[DirectoryEntry]]]:
        """Walk as ``descend`` of ``store.descent`` does, and leave out what is in held directories."""
        has = self.held.has
        return descend(
            top_fd,
            deepest,
            lambda entry: not has(entry.inode) and (enters is None or enters(entry)),
            self.open_child,
            unreadable,
        )

    def remove_empty_directories(self, path: bytes) -> list[tuple[bytes, FileId]]:
        """Remove the directory at ``path`` and those below it if empty; return paths and inodes, deepest first."""
        found = []
        left = [path]
        while left:
            directory = left.pop()
            found.append(directory)
            left += [child for child, stat in self.children(directory) if stat_module.S_ISDIR(stat.st_mode)]
        return [(directory, inode) for directory in reversed(found) if (inode := self._remove_if_empty(directory))]

    def children(self, path: bytes) -> list[tuple[bytes, FileStat]]:
        """Return path and lstat of each entry of the directory at ``path``; nothing if it is gone or unreadable."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # what this user may not read is not served
            fd = self.open_directory(path)
            try:
                for name in os.listdir(f"/proc/self/fd/{fd}".encode()):
                    with suppress(FileNotFoundError):
                        stat = file_stat(name, dir_fd=fd, follow_symlinks=False)
                        found.append((path + b"/" + name if path else name, stat))
            finally:
                os.close(fd)
        return found

    def _remove_if_empty(self, path: bytes) -> FileId:
        """Remove one directory; return its inode number, or 0 if it is not empty or does not exist."""
        if self.held.calls:
            self.held.check_moved(path)
        parent, _, name = path.rpartition(b"/")
        try:
            fd = self.open_directory(parent)
        except (FileNotFoundError, NotADirectoryError):
            return NO_FILE
        try:
            inode = file_stat(name, dir_fd=fd, follow_symlinks=False).st_ino
            self.remove_directory(fd, name)
        except FileNotFoundError:
            return NO_FILE
        except OSError as problem:
            if problem.errno in _NOT_EMPTY:
                return NO_FILE
            raise
        finally:
            os.close(fd)
        return inode

    def _open_or_make(
        self, names: list[bytes], mode: int, uid: int, gid: int, since: ImpliedTimes | None, directory_fd: int, level: int
    ) -> int:
        name = names[level]
        try:
            return self.open_child(directory_fd, name)
        except FileNotFoundError:
            with nullcontext() if since is None else keeping_mtime(directory_fd):
                os.mkdir(name, mode, dir_fd=directory_fd)
        above = file_stat(directory_fd)
        if os.geteuid() == 0:
            owner = above.st_uid if uid < 0 else uid, above.st_gid if gid < 0 else gid
            os.chown(name, *owner, dir_fd=directory_fd, follow_symlinks=False)
        os.chmod(name, mode | above.st_mode & stat_module.S_ISGID, dir_fd=directory_fd)  # whatever the umask says
        if since is not None:
            since_ns = since(b"/".join(names[: level + 1]))
            os.utime(name, ns=(since_ns, since_ns), dir_fd=directory_fd, follow_symlinks=False)
        self.place_partition(directory_fd, b"/".join(names[: level + 1]))
        return self.open_child(directory_fd, name)


def _last_of(directory_fd: int, steps: Iterable[_Step], opened: Callable[[int, _Step], int]) -> int:
    """Return a descriptor that the caller owns: of what the last step has ``opened`` in what the step before it had."""
    fd = os.open(b".", DIRECTORY, dir_fd=directory_fd)
    for step in steps:
        try:
            child = opened(fd, step)
        finally:
            os.close(fd)
        fd = child
    return fd


def _parts(path: bytes) -> Iterator[bytes]:
    """Divide a path into parts that a system call takes."""
    while len(path) > _PART_BYTES:
        end = path.rfind(b"/", 0, _PART_BYTES)
        if end < 0:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        yield path[:end]
        path = path[end + 1 :]
    if path:
        yield path


def _components(path: bytes) -> list[bytes]:
    """Split a path; raises ``OSError`` if it has empty components, ``.`` or ``..``."""
    names = path.split(b"/") if path else []
    if not _NO_NAMES.isdisjoint(names):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return names
