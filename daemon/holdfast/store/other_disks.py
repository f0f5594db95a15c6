"""Other disks of a store (``store.other_disks``): file systems that have directories of its tree beside the first one's.

A directory on each, which the store has for itself::

    disk.json       format version, the store's id and the disk's own id
    workdirs/       working directories, each under a name that its placeholder in the tree knows (``store.spread_tree``)
    partitions/     directories of partitions, likewise (``store.partition_placeholders``)
    fetching/  orphans/  trash/  quarantine/

The store directory's ``disks.json`` has the disks that are in use, with their numbers (``system.file_id``). A disk that is
broken when the daemon starts, or that the configuration names no more, is *lost*: its placeholders are removed, as if the
directories had been, and it is forgotten. One that is not there, or does not answer, is *absent*: its placeholders stay, and
whoever opens one gets EIO, until the daemon starts again and finds it. Nothing on a disk is deleted because its placeholder
is missing: it gets one again if its path is free, as after a power cut, or it is set aside.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import StoreUnsuitableError
from holdfast.store.disk_directories import PATIENCE_SECONDS, Directory, directories, within
from holdfast.store.disk_inspection import (
    DISK_FILE,
    PARTITIONS,
    SUBDIRECTORIES,
    WORKDIRS,
    Inspected,
    Inspection,
    KnownDisk,
    KnownDisks,
    check_not_left,
    count_left,
    lock_disk,
    write_disk_file,
)
from holdfast.store.other_disk import (
    AREAS_OF_DIRECTORIES,
    PLACEHOLDER_MARK,
    Mark,
    OtherDisk,
    Placeholder,
    make_like,
    mark_of,
)
from holdfast.store.partition_placeholders import PartitionPlaceholders
from holdfast.store.space import NO_ROOM
from holdfast.store.suitability import OTHER_DISK, check_hard_links, check_writable, failed
from holdfast.system.file_id import MOST_DISKS, FileId, disk_of

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESTALE})
_NOT_NAMED = "it is no longer in store.other_disks"


@dataclass(frozen=True, slots=True)
class LostDisk:
    """A disk that was in use and is not any more: where it was, what is wrong, and the paths of its working directories."""

    path: str
    problem: str
    workdirs: list[bytes] = field(default_factory=list)


class OtherDisks(NamedTuple):
    """The disks in use, their placeholders, and those that were lost."""

    disks: Sequence[OtherDisk]
    placed: Sequence[Placeholder]
    lost: Sequence[LostDisk]
    aside: Sequence[Path] = ()
    """The directories that belong to no path, where they are now."""
    given_up: Sequence[int] = ()
    """The numbers of disks in use whose partitions' directories were given up, and may still be known to the index."""
    vacated: Sequence[FileId] = ()
    """The ids of placeholders of partitions' directories that were removed."""

    @property
    def present(self) -> list[OtherDisk]:
        """The disks that were there when the daemon started."""
        return [disk for disk in self.disks if not disk.is_absent]

    def has_lost(self, file: FileId) -> bool:
        """Say whether a file was on a disk that is lost."""
        number = disk_of(file)
        return bool(self.lost) and 0 < number <= MOST_DISKS and all(disk.number != number for disk in self.disks)

    @property
    def missing(self) -> list[LostDisk]:
        """The disks that were lost and not replaced."""
        in_use = {str(disk.path) for disk in self.disks}
        return [lost for lost in self.lost if lost.path not in in_use]


NO_OTHER_DISKS = OtherDisks((), (), ())


def open_other_disks(store: Path, store_id: str, tree_fd: int, paths: Iterable[Path], undo: ExitStack) -> OtherDisks:
    """Open the disks at ``paths`` for the store, whose format says by now that it may have some.

    ``undo`` closes them again, and removes what is new. Raises ``StoreUnsuitableError`` for a directory that can't be a disk
    of this store and never was, and for a disk that is no longer among ``paths`` although it has working directories.
    """
    return _Opening(store, store_id, tree_fd, undo).opened(list(paths))


class _Opening:
    def __init__(self, store: Path, store_id: str, tree_fd: int, undo: ExitStack) -> None:
        self._store = store
        self._store_id = store_id
        self._tree_fd = tree_fd
        self._undo = undo
        self._known = KnownDisks.read(store)
        self._inspection = Inspection(store, store_id, self._known, os.fstat(tree_fd).st_dev)
        self._disks: list[OtherDisk] = []
        self._lost: dict[str, LostDisk] = {}
        """The disks that are in use no more, by id."""
        self._found: dict[str, dict[str, list[Directory]]] = {}
        """The directories on each disk that is there, by its id and the area."""
        self._aside: list[Path] = []

    def opened(self, paths: list[Path]) -> OtherDisks:
        """Open the disks, and bring placeholders and directories into agreement."""
        for path in paths:
            self._open(path)
        in_use = {disk.id for disk in self._disks}
        for known in self._known.disks:
            if known.disk not in in_use and known.disk not in self._lost:
                self._leave(known, is_named=Path(known.path) in paths)
        placed = list(self._find_placed())
        for disk in self._present():
            placed += self._place_again(disk, {each.name for each in placed if each.disk is disk})
        failed = {known.disk for known in self._known.disks if known.has_failed}
        partitions = PartitionPlaceholders(self._tree_fd)
        placed += self._find_partitions(partitions, failed)
        to_forget = failed | {known.disk for known in self._known.disks if known.is_to_forget}
        disks = [
            KnownDisk(
                disk.number,
                disk.id,
                str(disk.path),
                disk.mountpoint,
                has_failed=disk.id in failed and disk.is_absent,
                is_to_forget=disk.id in to_forget,
            )
            for disk in self._disks
        ]
        self._known.changed_to(disks).write(self._store)
        lost = [lost for lost in self._lost.values() if lost.problem or lost.workdirs]
        given_up = [disk.number for disk in self._disks if disk.id in to_forget]
        vacated = [FileId(inode) for inode in partitions.vacated]
        return OtherDisks(self._disks, placed, lost, [*self._aside, *partitions.aside], given_up, vacated)

    def _present(self) -> list[OtherDisk]:
        return [disk for disk in self._disks if not disk.is_absent]

    def _find_partitions(self, partitions: PartitionPlaceholders, failed: Collection[str]) -> Iterator[Placeholder]:
        """Yield the placeholders of partitions' directories. Those of disks that are lost or have ``failed`` are removed."""
        found = {disk: self._found[disk.id][PARTITIONS] for disk in self._present()}
        present = {disk.id for disk in found}
        absent = {disk.id: disk for disk in self._disks if disk.is_absent and disk.id not in failed}
        yield from partitions.on_disks(found, {disk.id for disk in found if disk.is_new or disk.id in failed}, absent)
        if any(known.disk not in present for known in self._known.disks):
            yield from partitions.without_disk(absent, present)

    def _open(self, path: Path) -> None:
        before = self._inspection.at(path)
        try:
            within(PATIENCE_SECONDS, partial(_probe, path))
            lock_fd = lock_disk(path)
            self._undo.callback(os.close, lock_fd)  # last, when all that is new is gone
            disk = self._made(self._inspection.look(path), lock_fd)
            self._found[disk.id] = {area: directories(disk, area) for area in AREAS_OF_DIRECTORIES}
            self._disks.append(disk)
        except OSError as problem:
            reason = str(problem.strerror)
            if before is None:
                raise StoreUnsuitableError(f"the other disk {path} can't be used: {reason}") from None
            if failed(problem):
                self._lost[before.disk] = LostDisk(str(path), reason)
            elif problem.errno in _NOT_THERE:
                self._disks.append(OtherDisk(before.number, before.disk, path, before.mountpoint, -1, {}, problem=reason))
            else:
                raise StoreUnsuitableError(
                    f"the other disk {path} has working directories of this store, and can't be used: {reason}; "
                    "mend that, or take it out of store.other_disks"
                ) from None

    def _made(self, found: Inspected, lock_fd: int) -> OtherDisk:
        """Open a disk, after it was prepared if it is new. Raises ``OSError``."""
        path = found.path
        if found.known is not None:
            number, disk_id = found.known.number, found.known.disk
        else:
            check_writable(path)
            check_hard_links(path, found.kind, OTHER_DISK)
            number, disk_id = self._next_number(), uuid.uuid4().hex
        fds = {".": lock_fd}
        for name in SUBDIRECTORIES:
            if not (path / name).exists():
                (path / name).mkdir(mode=0o700)
                self._undo.callback(_remove_if_empty, path / name)
            fds[name] = os.open(path / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._undo.callback(os.close, fds[name])
            os.listdir(fds[name])  # a disk that can't be read is found out here
            os.fchmod(fds[name], 0o700)  # what is below has rights in the mount that are those of the whole way
        if found.known is None:  # last, so that a directory is a disk of the store as a whole or not at all
            if not (path / DISK_FILE).exists():
                self._undo.callback((path / DISK_FILE).unlink, missing_ok=True)
            write_disk_file(path, self._store_id, disk_id)
        return OtherDisk(number, disk_id, path, found.mountpoint, found.device, fds, is_new=found.known is None)

    def _next_number(self) -> int:
        number = self._known.new_number(disk.number for disk in self._disks)
        if number is None:
            raise StoreUnsuitableError(
                f"the store directory {self._store} has {MOST_DISKS} other disks, with those that were let go since the "
                "machine was started, and can't have more; start the machine again, or leave some out of store.other_disks"
            )
        return number

    def _leave(self, known: KnownDisk, *, is_named: bool) -> None:
        """Let a disk go that is not found any more. Raises ``StoreUnsuitableError`` if it has working directories."""
        if is_named:
            self._lost[known.disk] = LostDisk(known.path, "another one is there")
            return
        check_not_left(known)
        is_empty = count_left(known) == 0
        self._lost[known.disk] = LostDisk(known.path, "" if is_empty else _NOT_NAMED)

    def _find_placed(self) -> Iterator[Placeholder]:
        """Yield the placeholders of disks in use. Others are removed, as if what they stand for had been."""
        disks = {disk.id: disk for disk in self._disks}
        inodes = {each.name: each.stat.st_ino for areas in self._found.values() for each in areas[WORKDIRS]}
        for path, inode, mark in list(_placeholders(self._tree_fd)):
            here = b"/proc/self/fd/%d/%s" % (self._tree_fd, path)
            disk = disks.get(mark.disk)
            inode_there = inodes.get(mark.name, 0)
            if disk is not None and (inode_there or disk.is_absent or not mark.is_leaving):
                if inode_there and mark.is_leaving:  # and did not leave
                    with suppress(OSError):  # a full disk: a later start does it
                        os.setxattr(here, PLACEHOLDER_MARK, mark_of(disk, mark.name), follow_symlinks=False)
                elif not inode_there and not disk.is_absent:
                    inode_there = _make_missing(disk, mark.name, os.stat(here, follow_symlinks=False), path)
                yield Placeholder(FileId(inode), path, disk, mark.name, inode_there)
                continue
            try:
                os.rmdir(here)
            except OSError:  # it is no empty directory any more
                os.removexattr(here, PLACEHOLDER_MARK, follow_symlinks=False)
            if disk is None:
                unknown = LostDisk(f"(with the id {mark.disk})", "nothing is known of it")
                self._lost.setdefault(mark.disk, unknown).workdirs.append(path)

    def _place_again(self, disk: OtherDisk, placed: set[bytes]) -> Iterator[Placeholder]:
        """Make placeholders for directories without one whose paths are free; set others aside."""
        for name, path, stat in self._found[disk.id][WORKDIRS]:
            if name in placed:
                continue
            inode = self._make_placeholder(disk, name, path, stat) if path is not None else None
            if path is not None and inode is not None:
                yield Placeholder(FileId(inode), path, disk, name, stat.st_ino)
            else:
                self._aside += disk.remove_or_set_aside(name, WORKDIRS)

    def _make_placeholder(self, disk: OtherDisk, name: bytes, path: bytes, like: os.stat_result) -> int | None:
        """Make the placeholder of a directory at ``path``, unless something is there; return its inode number."""
        here = b"/proc/self/fd/%d/%s" % (self._tree_fd, path)
        base = os.path.dirname(here)
        if path.count(b"/") != 1 or not os.path.isdir(base):
            return None
        try:
            os.mkdir(path, 0o700, dir_fd=self._tree_fd)
        except FileExistsError:
            if not stat_module.S_ISDIR(os.lstat(here).st_mode) or os.listdir(here):
                return None
        make_like(self._tree_fd, path, like)
        try:
            os.setxattr(here, PLACEHOLDER_MARK, mark_of(disk, name), os.XATTR_CREATE, follow_symlinks=False)
        except FileExistsError:  # it is another one's
            return None
        return os.lstat(here).st_ino


def _probe(path: Path) -> None:
    """Find out whether a disk in use works. A full one does. Raises ``OSError``."""
    path.stat()
    if (path / DISK_FILE).exists():
        try:
            check_writable(path)
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
        for name in SUBDIRECTORIES:
            with suppress(FileNotFoundError):
                os.listdir(path / name)


def _make_missing(disk: OtherDisk, name: bytes, like: os.stat_result, path: bytes) -> int:
    """Make the directory of a placeholder anew, and return its inode number. Raises ``StoreUnsuitableError``."""
    try:
        return disk.make(name, like, path)
    except OSError as problem:
        raise StoreUnsuitableError(
            f"the other disk {disk.path} lacks the working directory {os.fsdecode(path)}, which can't be made anew: "
            f"{problem.strerror}; make room there"
        ) from None


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # it was in use before
        directory.rmdir()


def _placeholders(tree_fd: int) -> Iterator[tuple[bytes, int, Mark]]:
    """Yield path, inode number and mark of each placeholder in the tree. Raises ``OSError``."""
    root = b"/proc/self/fd/%d" % tree_fd
    for base in os.listdir(root):
        if not stat_module.S_ISDIR(os.stat(base, dir_fd=tree_fd, follow_symlinks=False).st_mode):
            continue
        for name in os.listdir(root + b"/" + base):
            path = base + b"/" + name
            mark = Mark.at(root + b"/" + path)
            if mark is not None:
                yield path, os.stat(path, dir_fd=tree_fd, follow_symlinks=False).st_ino, mark
