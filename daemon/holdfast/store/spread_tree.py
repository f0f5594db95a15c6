"""A backing tree of which some directories are on other disks: working directories, and those of partitions of a state.

In the tree such a directory is a *placeholder*: an empty directory, with a mark that names the disk and the directory there.
Whoever opens the placeholder gets the directory that it stands for, and everything below that is reached from there. So the
directory is on one disk with all that is in it, and renames and links inside are those of a file system.

The id of the directory is that of its placeholder, its attributes are those that it has on its disk. A placeholder has its
path for good: neither it nor a directory above it can be renamed. The directory knows that path. It is made before the mark.
The placeholder has its owner and mode too: they outlive a disk that fails.
It is removed, or moved to its disk's trash, before the placeholder, whose mark says so from before that on. So a crash
leaves no directory that was removed, and none without a placeholder. A power cut may leave one without the other: a
directory gets its placeholder again, and the placeholder of a working directory an empty directory (``store.other_disks``).
That of a partition is then an ordinary directory of the first disk: what was there were copies, or was not synced.
"""

from __future__ import annotations

import errno
import logging
import os
import stat as stat_module
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

from holdfast.store.descent import DIRECTORY
from holdfast.store.disk_choice import DiskChoice, PartitionDisks, Reserve
from holdfast.store.held_directories import HeldDirectories
from holdfast.store.other_disk import (
    AREAS_OF_DIRECTORIES,
    PLACEHOLDER_MARK,
    OtherDisk,
    Placeholder,
    area_of,
    is_workdir,
    mark_of,
    note_rights,
)
from holdfast.store.placeholders import Placeholders
from holdfast.store.space import ignoring_full_disk
from holdfast.store.tree import Tree
from holdfast.system.file_id import NO_FILE, FileId, FileStat, as_listed, disk_of, id_on, with_id

_log = logging.getLogger("holdfast.store")
_MOST_PLACEHOLDERS = 50_000
"""The number from which on partitions' directories stay on the first disk: each takes some 600 bytes of memory."""


class SpreadTree(Tree):
    """The tree of a store with other disks. ``file_stat`` and ``listed_ids`` are for ``file_id.tell_apart``."""

    is_spread = True

    def __init__(
        self, root_fd: int, held: HeldDirectories, disks: Iterable[OtherDisk], placed: Iterable[Placeholder]
    ) -> None:
        super().__init__(root_fd, held)
        self.disks = list(disks)
        self._first_device = os.fstat(root_fd).st_dev
        self._by_device = {disk.device: disk for disk in self.disks}
        self._by_number = {disk.number: disk for disk in self.disks}
        self._choice = DiskChoice(root_fd, self.disks)
        self._partitions: PartitionDisks | None = None
        """Chooses the disks of partitions' directories, if new ones are spread."""
        self._placeholders = Placeholders(placed)

    # --- which file it is ------------------------------------------------------------------------------------------------

    def file_stat(self, file: int | bytes | str, /, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> FileStat:
        """``os.stat`` of a file of the store, with its id."""
        found = os.stat(file, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if found.st_dev == self._first_device:
            placeholder = self._placeholders.with_id(FileId(found.st_ino)) if stat_module.S_ISDIR(found.st_mode) else None
            if placeholder is None or placeholder.disk.has_failed:
                return cast(FileStat, found)
            there = os.stat(placeholder.name, dir_fd=placeholder.directory_fd, follow_symlinks=False)
            return with_id(there, placeholder.id)
        disk = self._by_device.get(found.st_dev)
        file_id = id_on(disk.number, found.st_ino) if disk is not None else FileId(found.st_ino)
        return with_id(found, self._placeholders.id_of(file_id))

    def listed_ids(self, directory: int | bytes | str) -> Callable[[os.DirEntry[bytes] | os.DirEntry[str]], FileId]:
        """Return a function that returns the id of a file from the entry that the listing of ``directory`` has of it."""
        disk = self._by_device.get(os.stat(directory).st_dev)
        if disk is None:
            return as_listed
        number = disk.number
        return lambda entry: id_on(number, entry.inode())

    def lists_ids(self, directory: FileId) -> bool:
        """Say whether what the system lists as the inode numbers in a directory are ids."""
        return self.disk_number(directory) == 0

    def disk_fd(self, directory: FileId) -> int:
        """Return a descriptor of the tree's own on the disk that a directory is on."""
        disk = self._by_number.get(self.disk_number(directory))
        return self.root_fd if disk is None or disk.is_absent else disk.root_fd

    def disk_number(self, directory: FileId) -> int:
        """Return the number of the disk that a file, or what is in a directory, is on; 0 for the first."""
        placeholder = self._placeholders.with_id(directory)
        return disk_of(directory) if placeholder is None else placeholder.disk.number

    def disk_at(self, path: bytes) -> int:
        """Return the number of the disk that what is at ``path`` is on, or would be."""
        placeholder = self._placeholders.above(path)
        if placeholder is not None:
            return placeholder.disk.number
        partition = self._partitions.partition_of(path) if self._partitions is not None else None
        if partition is None or self._partitions is None or self.inode(partition):
            return 0
        chosen = self._partitions.of(partition)
        return 0 if chosen is None else chosen.number

    # --- ways through the tree -------------------------------------------------------------------------------------------

    def open_child(self, directory_fd: int, name: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the subdirectory ``name``. Raises ``OSError``, as for a failed disk."""
        fd = super().open_child(directory_fd, name)
        placeholder = self._behind(fd)
        if placeholder is None:
            return fd
        os.close(fd)
        _check_disk(placeholder)
        return super().open_child(placeholder.directory_fd, placeholder.name)

    def open_directory(self, path: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the directory at ``path``. Raises ``OSError``, with EBUSY if it is held."""
        if self.held.calls:
            self.held.check(path)
        placeholder = self._placeholders.above(path)
        if placeholder is not None:
            _check_disk(placeholder)
        return super().open_below(*self.anchor(path))

    def open_below(self, directory_fd: int, path: bytes) -> int:
        """Return a new ``O_PATH`` descriptor of the directory at ``path`` below another one. Raises ``OSError``."""
        fd = os.open(b".", DIRECTORY, dir_fd=directory_fd)
        try:
            for _ in range(self._placeholders.deepest):  # further down there is none
                if not path or os.fstat(fd).st_dev != self._first_device:
                    break
                first, _, path = path.partition(b"/")
                child = self.open_child(fd, first)
                os.close(fd)
                fd = child
            return super().open_below(fd, path)
        finally:
            os.close(fd)

    def anchor(self, path: bytes) -> tuple[int, bytes]:
        """Return a descriptor of the tree's own, and the path from there, by which the system finds what is at ``path``."""
        placeholder = self._placeholders.above(path)
        if placeholder is None or placeholder.disk.has_failed:
            return self.root_fd, path
        return placeholder.directory_fd, placeholder.name + path[len(placeholder.path) :]

    def path_of(self, directory_fd: int) -> bytes | None:
        """Return the path of a directory; None if it is not in the tree. Raises ``OSError``."""
        disk = self._by_device.get(os.fstat(directory_fd).st_dev)
        if disk is None:
            return super().path_of(directory_fd)
        root, path = (os.readlink(b"/proc/self/fd/%d" % fd) for fd in (disk.root_fd, directory_fd))
        if not path.startswith(root + b"/"):
            return None
        area, _, below = path[len(root) + 1 :].partition(b"/")
        name, slash, rest = below.partition(b"/")
        placeholder = self._placeholders.named(name) if area.decode(errors="replace") in AREAS_OF_DIRECTORIES else None
        return None if placeholder is None else placeholder.path + slash + rest

    def _behind(self, fd: int) -> Placeholder | None:
        """Return the placeholder that a descriptor is of, if it is of one."""
        found = os.fstat(fd)
        return self._placeholders.with_id(FileId(found.st_ino)) if found.st_dev == self._first_device else None

    # --- placeholders come and go ----------------------------------------------------------------------------------------

    def place_on_a_disk(self, parent_fd: int, path: bytes, reserve: Reserve) -> None:
        """Choose a disk for the working directory at ``path``, new and empty, in the directory ``parent_fd``.

        It is that which has the most space above its reserve for each working directory on it, the new one included. A disk
        whose reserve is not free comes after all others, and one that does not take the directory is passed over; on the
        first disk it is already.
        """
        if self._placeholders.at(path) is not None:
            return
        base, _, name = path.rpartition(b"/")
        placed = {disk.number: self._placeholders.on(disk.number, workdirs=True) for disk in self.disks}
        counts = Counter({number: len(paths) for number, paths in placed.items()})
        elsewhere = sum(each.startswith(base + b"/") for paths in placed.values() for each in paths)
        counts[0] = max(0, len(os.listdir(f"/proc/self/fd/{parent_fd}")) - elsewhere - 1)  # the new one is there already
        self._place(self._choice.by_room(counts, reserve), parent_fd, path, name)

    def spread_partitions(self, partition_of: Callable[[bytes], bytes | None], reserve: Reserve) -> None:
        """From now on, spread the new directories of partitions over all disks (``disk_choice.PartitionDisks``)."""
        self._partitions = PartitionDisks(self._choice, partition_of, reserve)

    def place_partition(self, parent_fd: int, path: bytes) -> None:
        """Choose a disk for the directory at ``path``, new and empty, if it is that of a partition and these are spread."""
        partitions = self._partitions
        if partitions is None or partitions.partition_of(path) != path or self._placeholders.above(path) is not None:
            return
        if len(self._placeholders) >= _MOST_PLACEHOLDERS:
            return
        self._place(partitions.made(path), parent_fd, path, path.rpartition(b"/")[2])

    def _place(self, disks: Iterable[OtherDisk | None], parent_fd: int, path: bytes, name: bytes) -> None:
        """Let the directory ``name``, if empty, be on the first of the disks that takes it; None: where it is.

        It stays where it is if the first disk can't read it, or does not take the mark.
        """
        here = b"/proc/self/fd/%d/%s" % (parent_fd, name)
        try:
            found = os.stat(here, follow_symlinks=False)
            if os.listdir(here):
                return
        except OSError as problem:
            _log.warning("%s stays on the first disk, which can't read it: %s", os.fsdecode(path), problem)
            return
        new = uuid.uuid4().hex.encode()
        for disk in disks:
            if disk is None:
                return
            try:
                inode_there = disk.make(new, found, path)
            except OSError as problem:
                _log.warning("%s takes no directory: %s", disk.path, problem)
                disk.note(problem)
                continue
            try:
                os.setxattr(here, PLACEHOLDER_MARK, mark_of(disk, new), follow_symlinks=False)
            except OSError as problem:
                _log.warning("%s stays on the first disk, which takes no mark: %s", os.fsdecode(path), problem)
                disk.remove_or_set_aside(new, area_of(path))
                return
            self._add(Placeholder(FileId(found.st_ino), path, disk, new, inode_there))
            return

    def keep_rights(self, directory: FileId) -> None:
        """Note owner and mode of a directory, which have changed, on its placeholder. Raises ``OSError``."""
        placeholder = self._placeholders.with_id(directory)
        if placeholder is None or placeholder.disk.has_failed:
            return
        there = os.stat(placeholder.name, dir_fd=placeholder.directory_fd, follow_symlinks=False)
        with ignoring_full_disk():  # some file systems take room for any change
            note_rights(self.root_fd, placeholder.path, there)

    def remove_directory(self, parent_fd: int, name: bytes) -> None:
        """rmdir(2). Raises ``OSError``."""
        found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        is_here = found.st_dev == self._first_device and stat_module.S_ISDIR(found.st_mode)
        placeholder = self._placeholders.with_id(FileId(found.st_ino)) if is_here else None
        if placeholder is not None:
            _check_disk(placeholder)
            with self._marked_as_leaving(placeholder), suppress(FileNotFoundError):
                os.rmdir(placeholder.name, dir_fd=placeholder.directory_fd)
            self._drop(placeholder)  # before another directory can get its number
        os.rmdir(name, dir_fd=parent_fd)

    @contextmanager
    def leaving(self, directory: FileId) -> Iterator[None]:
        """Let a directory, with what is in it, leave the tree in this block. Raises ``OSError``.

        What it has on another disk goes first, and the placeholder says so from before that on.
        """
        placeholder = self._placeholders.with_id(directory)
        if placeholder is None:
            yield
            return
        if placeholder.disk.has_failed:
            yield
        else:
            with self._marked_as_leaving(placeholder):
                placeholder.disk.throw(placeholder.name, placeholder.path)
                try:
                    yield
                except BaseException:
                    placeholder.disk.take_back(placeholder.name, placeholder.path)
                    raise
        self._drop(placeholder)

    @contextmanager
    def _marked_as_leaving(self, placeholder: Placeholder) -> Iterator[None]:
        """Let the directory of a placeholder go in this block. After a crash the placeholder goes as well, if that has."""
        self._mark(placeholder, is_leaving=True)
        try:
            yield
        except BaseException:
            with suppress(OSError):  # the next start finds the directory, and does it then
                self._mark(placeholder, is_leaving=False)
            raise

    def _mark(self, placeholder: Placeholder, *, is_leaving: bool) -> None:
        here = b"/proc/self/fd/%d/%s" % (self.root_fd, placeholder.path)
        mark = mark_of(placeholder.disk, placeholder.name, is_leaving=is_leaving)
        with ignoring_full_disk():  # some file systems take room for any change: a removal goes on without
            os.setxattr(here, PLACEHOLDER_MARK, mark, os.XATTR_REPLACE, follow_symlinks=False)

    def has_failed(self, path: bytes) -> bool:
        """Say whether what is at ``path`` is on a disk that has failed or is not there."""
        placeholder = self._placeholders.above(path)
        return placeholder is not None and placeholder.disk.has_failed

    def has_lost(self, file: FileId) -> bool:
        """Say whether a file is on a disk that has failed or is not there."""
        disk = self._by_number.get(disk_of(file))
        return disk is not None and disk.has_failed

    def is_placed_below(self, path: bytes) -> bool:
        """Say whether a directory at or below ``path`` is on another disk than the one above it."""
        return self._placeholders.is_any_below(path)

    def workdirs_on(self, disk: int) -> list[bytes]:
        """Return the paths of the working directories on the disk with this number, which is not the first."""
        return self._placeholders.on(disk, workdirs=True)

    def partitions_on(self, disk: int) -> list[bytes]:
        """Return the paths of the partitions' directories on the disk with this number, which is not the first."""
        return self._placeholders.on(disk, workdirs=False)

    def _remove_if_empty(self, path: bytes) -> FileId:
        is_kept = is_workdir(path) and self._placeholders.at(path) is not None
        return NO_FILE if is_kept else super()._remove_if_empty(path)

    def _add(self, placeholder: Placeholder) -> None:
        self._placeholders.add(placeholder)

    def _drop(self, placeholder: Placeholder) -> None:
        self._placeholders.drop(placeholder)


class _DiskGoneError(FileNotFoundError):
    """A directory is on a disk that is not used. Users get EIO; what the daemon does by itself goes on as without it."""


def _check_disk(placeholder: Placeholder) -> None:
    if placeholder.disk.has_failed:
        raise _DiskGoneError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(placeholder.path))
