"""A disk of a store beside the first one, with the directories that are on it (``store.other_disks``)."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.store.disk_inspection import PARTITIONS, WORKDIRS
from holdfast.store.space import DiskSpace, disk_space
from holdfast.store.staging import Place
from holdfast.store.suitability import check_writable, failed
from holdfast.system.file_id import FileId

PLACEHOLDER_MARK = "user.holdfast.disk"
"""The attribute of a placeholder: the id of the disk and the name of the directory there, with a slash between them.

While the directory is being removed there is a hyphen in place of the slash: ext4 needs no room for that.
"""
NO_MARK = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM, errno.ENOENT, errno.ENOTDIR})
_PLACE = "user.holdfast.place"
"""The attribute of a directory on another disk: its path in the tree."""
AREAS_OF_DIRECTORIES = (WORKDIRS, PARTITIONS)

_DEFAULT_MODE = 0o755  # of directories that only the store has
_NEVER_FULL = DiskSpace(0, 2**62)


@dataclass(eq=False)
class OtherDisk:
    """A disk in use. ``fds`` has the descriptors of its subdirectories by name, and that of the locked directory above."""

    number: int
    id: str
    path: Path
    mountpoint: str
    device: int
    fds: dict[str, int]
    is_new: bool = False
    """True if it was not in use before this start."""
    problem: str = ""
    """The reason why it is absent."""
    has_failed: bool = field(init=False)
    """True if it is absent, or has answered as a disk does that is broken or gone: until the daemon starts again."""

    def __post_init__(self) -> None:
        self.has_failed = self.is_absent

    @property
    def is_absent(self) -> bool:
        """True if it was not there when the daemon started."""
        return bool(self.problem)

    @property
    def root_fd(self) -> int:
        """The descriptor of the store's directory on the disk."""
        return self.fds["."]

    def area_fd(self, path: bytes) -> int:
        """Return the descriptor of the directory on the disk that has what is at ``path`` in the tree."""
        return self.fds[area_of(path)]

    def place(self, area: str) -> Place:
        """Return this disk's part of an area, one of ``AREAS``."""
        return Place(self.number, self.device, self.fds[area])

    def make(self, name: bytes, like: os.stat_result, path: bytes) -> int:
        """Make the directory for ``path`` in the tree, with owner, mode and times of another; return its inode number.

        Raises ``OSError``.
        """
        fd = self.area_fd(path)
        os.mkdir(name, 0o700, dir_fd=fd)
        try:
            os.setxattr(b"/proc/self/fd/%d/%s" % (fd, name), _PLACE, path)
            make_like(fd, name, like)
            return os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino
        except OSError:
            os.rmdir(name, dir_fd=fd)
            raise

    def place_of(self, name: bytes, area: str) -> bytes | None:
        """Return the path in the tree that a directory was made for. Raises ``OSError``."""
        try:
            return os.getxattr(b"/proc/self/fd/%d/%s" % (self.fds[area], name), _PLACE)
        except OSError as problem:
            if problem.errno not in NO_MARK:
                raise
            return None

    def throw(self, name: bytes, path: bytes) -> None:
        """Move the directory for ``path`` to the trash. Raises ``OSError``."""
        os.rename(name, name, src_dir_fd=self.area_fd(path), dst_dir_fd=self.fds["trash"])

    def take_back(self, name: bytes, path: bytes) -> None:
        """Move it back."""
        with suppress(OSError):
            os.rename(name, name, src_dir_fd=self.fds["trash"], dst_dir_fd=self.area_fd(path))

    def remove_or_set_aside(self, name: bytes, area: str) -> list[Path]:
        """Remove a directory if it is empty, else move it to where nothing is deleted; return where.

        Raises ``OSError``, but not for a disk that fails: that is noted.
        """
        aside = b"aside-" + name
        try:
            os.rmdir(name, dir_fd=self.fds[area])
        except OSError:
            try:
                os.rename(name, aside, src_dir_fd=self.fds[area], dst_dir_fd=self.fds["trash"])
            except OSError as problem:
                self.note(problem)
                if not self.has_failed:
                    raise
            else:
                return [self.path / "trash" / os.fsdecode(aside)]
        return []

    def space(self) -> DiskSpace:
        """Return the disk's space. One that has failed lacks none, so that nothing is tried for the sake of it."""
        if not self.has_failed:
            try:
                return disk_space(self.root_fd)
            except OSError as problem:
                self.note(problem)
        return _NEVER_FULL

    def note(self, problem: OSError) -> None:
        """Note an error of the disk."""
        self.has_failed = self.has_failed or failed(problem)

    def look(self) -> None:
        """Find out whether the disk has failed. Waits for the disk: call it in a thread."""
        try:
            check_writable(self.path)
        except OSError as problem:
            self.note(problem)


def is_workdir(path: bytes) -> bool:
    """Say whether a placeholder at ``path`` is that of a working directory; else it is that of a partition's directory."""
    return path.count(b"/") == 1


def area_of(path: bytes) -> str:
    """Return the name of the directory on a disk that has what is at ``path`` in the tree."""
    return WORKDIRS if is_workdir(path) else PARTITIONS


class Placeholder(NamedTuple):
    """A directory on another disk: its id, which is the placeholder's, its path in the tree, the disk, its name there.

    ``inode_there`` is its inode number there; 0 if the disk is absent.
    """

    id: FileId
    path: bytes
    disk: OtherDisk
    name: bytes
    inode_there: int = 0

    @property
    def directory_fd(self) -> int:
        """The descriptor of the directory on the disk that the name is in."""
        return self.disk.area_fd(self.path)


class Mark(NamedTuple):
    """A placeholder's mark: the disk's id, the name there, and whether the directory was being removed."""

    disk: str
    name: bytes
    is_leaving: bool

    @classmethod
    def at(cls, directory: bytes) -> Mark | None:
        """Return the mark of the directory with this system path; None if it has none. Raises ``OSError``."""
        try:
            return cls._read(os.getxattr(directory, PLACEHOLDER_MARK, follow_symlinks=False))
        except OSError as problem:
            if problem.errno not in NO_MARK:
                raise
            return None

    def is_of(self, disk: OtherDisk, name: bytes) -> bool:
        """Say whether it is that of the directory with this name on ``disk``."""
        return (self.disk, self.name) == (disk.id, name)

    @classmethod
    def _read(cls, mark: bytes) -> Mark:
        is_leaving = b"/" not in mark
        disk, _, name = mark.partition(b"-" if is_leaving else b"/")
        return cls(disk.decode(errors="replace"), name, is_leaving)


def mark_of(disk: OtherDisk, name: bytes, *, is_leaving: bool = False) -> bytes:
    """Return the mark of the placeholder of a directory on ``disk``."""
    return disk.id.encode() + (b"-" if is_leaving else b"/") + name


def make_like(directory_fd: int, name: bytes, like: os.stat_result) -> None:
    """Give a directory the owner, mode and times of another."""
    if os.geteuid() == 0:
        os.chown(name, like.st_uid, like.st_gid, dir_fd=directory_fd, follow_symlinks=False)
    os.chmod(name, stat_module.S_IMODE(like.st_mode), dir_fd=directory_fd)
    os.utime(name, ns=(like.st_atime_ns, like.st_mtime_ns), dir_fd=directory_fd, follow_symlinks=False)


def note_rights(directory_fd: int, name: bytes, like: os.stat_result) -> None:
    """Give a placeholder the owner and mode of the directory that it stands for; its owner keeps all rights to it."""
    before = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    if os.geteuid() == 0 and (before.st_uid, before.st_gid) != (like.st_uid, like.st_gid):
        os.chown(name, like.st_uid, like.st_gid, dir_fd=directory_fd, follow_symlinks=False)
    mode = stat_module.S_IMODE(like.st_mode) | 0o700
    if stat_module.S_IMODE(before.st_mode) != mode:
        os.chmod(name, mode, dir_fd=directory_fd)


def has_own_rights(placeholder: os.stat_result, above: os.stat_result) -> bool:
    """Say whether a directory's rights are not those that one has by default which only the store has."""
    mode = stat_module.S_IMODE(placeholder.st_mode) & ~stat_module.S_ISGID
    return mode != _DEFAULT_MODE or (placeholder.st_uid, placeholder.st_gid) != (above.st_uid, above.st_gid)
