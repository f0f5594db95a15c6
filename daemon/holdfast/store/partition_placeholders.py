"""Partitions' directories on other disks, when the daemon starts: each is brought together with its placeholder again.

The disks say which there are, and each directory knows its path: so a start does not search the tree, which may have
millions of files. It does while a disk is not there, or gone for good. Placeholders of one that is not there stay, and those
of one that is gone, or that a daemon has given up because it failed, are removed: what was there is fetched again.

Nothing on a disk is deleted because its place in the tree is gone. A directory with files whose placeholder is missing, as
after a power cut, gets it again, with the directories above, which are closed to others: nobody knows whom they let in. It
is set aside if something else is there, or if it was given up.

A partition may have been removed and made anew just before a power cut, of which the first disk does not know, or the disk
where it was. So a placeholder may name a directory that is gone: it becomes that of the one which has its path now. Of two
with one path the one that was changed last is the later one, since the other was gone when it was made.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.store.disk_directories import Directory, is_empty
from holdfast.store.disk_inspection import PARTITIONS
from holdfast.store.other_disk import (
    PLACEHOLDER_MARK,
    Mark,
    OtherDisk,
    Placeholder,
    has_own_rights,
    make_like,
    mark_of,
    note_rights,
)
from holdfast.store.tree import Tree
from holdfast.system.file_id import FileId

_CLOSED = 0o700
"""The mode of the directories above one that a power cut has taken: theirs is not known, and may have shut others out."""
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
        self._living: set[bytes] = set()
        """The names of the directories that may have placeholders."""
        self._absent: Collection[str] = ()

    def on_disks(
        self,
        found: Mapping[OtherDisk, Sequence[Directory]],
        given_up: Collection[str],
        absent: Collection[str],
    ) -> Iterator[Placeholder]:
        """Yield those of the directories that were ``found`` on the disks that are there.

        Those on disks with ids in ``given_up`` are removed. ``absent`` has the ids of disks whose directories are not known.
        Raises ``OSError``.
        """
        latest: dict[bytes, tuple[OtherDisk, Directory]] = {}
        others: list[tuple[OtherDisk, Directory]] = []
        for disk, directories in found.items():
            for each in directories:
                last = latest.get(each.path) if each.path is not None else None
                if each.path is None or disk.id in given_up:
                    others.append((disk, each))
                elif last is None or last[1].stat.st_ctime_ns < each.stat.st_ctime_ns:
                    latest[each.path] = disk, each
                    others += [last] if last is not None else []
                else:
                    others.append((disk, each))
        self._living, self._absent = {each.name for _, each in latest.values()}, absent
        for path, (disk, each) in latest.items():
            inode = self._placeholder(disk, each, path)
            if inode is not None:
                yield Placeholder(FileId(inode), path, disk, each.name, each.stat.st_ino)
            else:
                others.append((disk, each))
        for disk, each in others:
            if each.path is not None and disk.id in given_up:
                self._remove_if_of(disk, each.name, each.path)
            self.aside += disk.remove_or_set_aside(each.name, PARTITIONS)

    def without_disk(self, absent: Mapping[str, OtherDisk], present: Collection[str]) -> Iterator[Placeholder]:
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
                    yield Placeholder(FileId(inode), b"/".join([*trail, entry.name]), absent[mark.disk], mark.name)
                else:
                    self._remove(fd, entry.name, inode)

    def _placeholder(self, disk: OtherDisk, directory: Directory, path: bytes) -> int | None:
        """Return the inode number of a directory's placeholder, which is made if need be; None if it can't have one."""
        parent, _, last = path.rpartition(b"/")
        try:
            return self._marked(disk, directory, parent, last)
        except NotADirectoryError:
            return None
        except FileNotFoundError:
            if is_empty(disk, directory.name, PARTITIONS):
                return None
        like = directory.stat
        fd = self._tree.make_directories(parent, _CLOSED, like.st_uid, like.st_gid)
        try:
            os.mkdir(last, _CLOSED, dir_fd=fd)
            make_like(fd, last, like)
        finally:
            os.close(fd)
        return self._marked(disk, directory, parent, last)

    def _marked(self, disk: OtherDisk, directory: Directory, parent: bytes, last: bytes) -> int | None:
        """Mark an empty directory as the placeholder of one on ``disk``; return its inode number.

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
            if mark is not None and not mark.is_of(disk, directory.name) and self._is_valid(mark):
                return None
            if mark != (disk.id, directory.name, False):
                os.setxattr(here, PLACEHOLDER_MARK, mark_of(disk, directory.name), follow_symlinks=False)
            with suppress(OSError):  # a full disk: a later start does it
                note_rights(fd, last, directory.stat)
            return found.st_ino
        finally:
            os.close(fd)

    def _is_valid(self, mark: Mark) -> bool:
        """Say whether a placeholder with this mark may stand for the directory that it names."""
        return not mark.is_leaving and (mark.name in self._living or mark.disk in self._absent)

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
        """Remove a placeholder. One with rights of its own becomes a directory of the first disk, so that these go on."""
        found = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if not has_own_rights(found, os.fstat(directory_fd)):
            with suppress(OSError):  # it is no empty directory any more
                os.rmdir(name, dir_fd=directory_fd)
                self.vacated.append(inode)
                return
        os.removexattr(b"/proc/self/fd/%d/%s" % (directory_fd, name), PLACEHOLDER_MARK, follow_symlinks=False)
