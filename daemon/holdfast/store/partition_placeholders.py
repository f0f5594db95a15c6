"""Partitions' directories on other disks, when the daemon starts: each is brought together with its placeholder again.

The disks say which there are, and each directory knows its path: so a start does not search the tree, which may have
millions of files. It does while a disk is not there, or gone for good. Placeholders of one that is not there stay, and those
of one that is gone, or that a daemon has given up because it failed, are removed: what was there is fetched again.

Nothing on a disk is deleted because its place in the tree is gone. A directory with files whose placeholder is missing, as
after a power cut, gets it again, with the directories above, and is set aside if something else is there, or if it was given
up.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.store.disk_inspection import PARTITIONS
from holdfast.store.other_disk import PLACEHOLDER_MARK, Mark, OtherDisk, Placed, make_like, mark_of
from holdfast.store.tree import Tree

_LEAST_LEVELS_ABOVE = 3
"""The levels above a partition's directory: the zone, the directory of all state, that of an operator."""


class PartitionPlaceholders:
    """Those in the tree ``tree_fd``. ``aside`` has where directories are now that have no place any more.

    ``vacated`` has the inode numbers of placeholders that were removed.
    """

    def __init__(self, tree_fd: int) -> None:
        self._tree = Tree(tree_fd)
        self.aside: list[Path] = []
        self.vacated: list[int] = []

    def of_disk(self, disk: OtherDisk, *, is_given_up: bool) -> Iterator[Placed]:
        """Yield those of a disk that is there; with ``is_given_up``, remove them. Raises ``OSError``."""
        for name in map(os.fsencode, os.listdir(disk.fds[PARTITIONS])):
            path = disk.place_of(name, PARTITIONS)
            if path is not None and not is_given_up:
                inode = self._placeholder(disk, name, path)
                if inode is not None:
                    yield Placed(inode, path, disk, name)
                    continue
            elif path is not None:
                self._remove_if_of(disk, name, path)
            try:
                os.rmdir(name, dir_fd=disk.fds[PARTITIONS])
            except OSError:
                self.aside.append(disk.set_aside(name, PARTITIONS))

    def without_disk(self, absent: Mapping[str, OtherDisk], present: Collection[str]) -> Iterator[Placed]:
        """Yield the placeholders of disks that are ``absent``, and remove those of disks that are not ``present`` either.

        Disks are named by their ids. It goes through all directories. Raises ``OSError``.
        """
        for trail, fd, entries in self._tree.descend(self._tree.root_fd):
            if len(trail) < _LEAST_LEVELS_ABOVE:
                continue
            for entry in entries:
                mark = Mark.at(b"/proc/self/fd/%d/%s" % (fd, entry.name)) if entry.is_directory else None
                if mark is None or mark.disk in present:
                    continue
                inode = os.stat(entry.name, dir_fd=fd, follow_symlinks=False).st_ino
                if mark.disk in absent and not os.listdir(b"/proc/self/fd/%d/%s" % (fd, entry.name)):
                    yield Placed(inode, b"/".join([*trail, entry.name]), absent[mark.disk], mark.name)
                else:
                    self._remove(fd, entry.name, inode)

    def _placeholder(self, disk: OtherDisk, name: bytes, path: bytes) -> int | None:
        """Return the inode number of a directory's placeholder, which is made if need be; None if it can't have one."""
        there = b"/proc/self/fd/%d/%s" % (disk.fds[PARTITIONS], name)
        parent, _, last = path.rpartition(b"/")
        try:
            return self._marked(disk, name, parent, last)
        except NotADirectoryError:
            return None
        except FileNotFoundError:
            if not os.listdir(there):
                return None
        like = os.stat(there)
        fd = self._tree.make_directories(parent, stat_module.S_IMODE(like.st_mode), like.st_uid, like.st_gid)
        try:
            os.mkdir(last, 0o700, dir_fd=fd)
            make_like(fd, last, like)
        finally:
            os.close(fd)
        return self._marked(disk, name, parent, last)

    def _marked(self, disk: OtherDisk, name: bytes, parent: bytes, last: bytes) -> int | None:
        """Mark an empty directory as the placeholder of the one with this name on ``disk``; return its inode number.

        Returns None if it is no empty directory, or another one's placeholder. Raises ``FileNotFoundError``, and
        ``NotADirectoryError``.
        """
        fd = self._tree.open_directory(parent)
        try:
            here = b"/proc/self/fd/%d/%s" % (fd, last)
            found = os.lstat(here)
            if not stat_module.S_ISDIR(found.st_mode) or os.listdir(here):
                return None
            mark = Mark.at(here)
            if mark is not None and not mark.is_of(disk, name):
                return None
            if mark is None or mark.is_leaving:
                os.setxattr(here, PLACEHOLDER_MARK, mark_of(disk, name), follow_symlinks=False)
            return found.st_ino
        finally:
            os.close(fd)

    def _remove_if_of(self, disk: OtherDisk, name: bytes, path: bytes) -> None:
        """Remove the placeholder of a directory, if it has one."""
        parent, _, last = path.rpartition(b"/")
        with suppress(FileNotFoundError, NotADirectoryError):
            fd = self._tree.open_directory(parent)
            try:
                mark = Mark.at(b"/proc/self/fd/%d/%s" % (fd, last))
                if mark is not None and mark.is_of(disk, name):
                    self._remove(fd, last, os.stat(last, dir_fd=fd, follow_symlinks=False).st_ino)
            finally:
                os.close(fd)

    def _remove(self, directory_fd: int, name: bytes, inode: int) -> None:
        try:
            os.rmdir(name, dir_fd=directory_fd)
            self.vacated.append(inode)
        except OSError:  # it is no empty directory any more
            os.removexattr(b"/proc/self/fd/%d/%s" % (directory_fd, name), PLACEHOLDER_MARK, follow_symlinks=False)
