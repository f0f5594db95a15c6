"""A disk of a store beside the first one, with its working directories (``store.other_disks``)."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.store.areas import Place
from holdfast.store.disk_inspection import WORKDIRS
from holdfast.store.free_space import DiskSpace, disk_space
from holdfast.store.suitability import check_writable, failed

PLACEHOLDER_MARK = "user.holdfast.disk"
"""The attribute of a placeholder: the id of the disk and the name of the directory there, with a slash between them.

While the directory is being removed there is a hyphen in place of the slash: ext4 needs no room for that.
"""
NO_MARK = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM, errno.ENOENT, errno.ENOTDIR})
_PLACE = "user.holdfast.place"
"""The attribute of a working directory on another disk: its path in the tree."""

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
    def workdirs_fd(self) -> int:
        """The descriptor of the directory of working directories."""
        return self.fds[WORKDIRS]

    def place(self, area: str) -> Place:
        """Return this disk's part of an area, one of ``AREAS``."""
        return Place(self.number, self.device, self.fds[area])

    def make(self, name: bytes, like: os.stat_result, path: bytes) -> None:
        """Make the working directory for ``path`` in the tree, with the owner and mode of another. Raises ``OSError``."""
        os.mkdir(name, 0o700, dir_fd=self.workdirs_fd)
        try:
            os.setxattr(b"/proc/self/fd/%d/%s" % (self.workdirs_fd, name), _PLACE, path)
            make_like(self.workdirs_fd, name, like)
        except OSError:
            os.rmdir(name, dir_fd=self.workdirs_fd)
            raise

    def lacks(self, name: bytes) -> bool:
        """Say whether there is no working directory with this name, as far as is known. Raises ``OSError``."""
        return not self.is_absent and os.fsdecode(name) not in os.listdir(self.workdirs_fd)

    def place_of(self, name: bytes) -> bytes | None:
        """Return the path in the tree that a working directory was made for. Raises ``OSError``."""
        try:
            return os.getxattr(b"/proc/self/fd/%d/%s" % (self.workdirs_fd, name), _PLACE)
        except OSError as problem:
            if problem.errno not in NO_MARK:
                raise
            return None

    def throw(self, name: bytes) -> None:
        """Move a working directory to the trash. Raises ``OSError``."""
        os.rename(name, name, src_dir_fd=self.workdirs_fd, dst_dir_fd=self.fds["trash"])

    def take_back(self, name: bytes) -> None:
        """Move it back."""
        with suppress(OSError):
            os.rename(name, name, src_dir_fd=self.fds["trash"], dst_dir_fd=self.workdirs_fd)

    def set_aside(self, name: bytes) -> Path:
        """Move a working directory to where nothing is deleted; return where. Raises ``OSError``."""
        aside = b"aside-" + name
        os.rename(name, aside, src_dir_fd=self.workdirs_fd, dst_dir_fd=self.fds["trash"])
        return self.path / "trash" / os.fsdecode(aside)

    def space(self) -> DiskSpace:
        """Return the disk's space. One that has failed lacks none, so that nothing is tried for the sake of it."""
        if not self.has_failed:
            try:
                return disk_space(self.workdirs_fd)
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


class Mark(NamedTuple):
    """A placeholder's mark: the disk's id, the name there, and whether the directory was being removed."""

    disk: str
    name: bytes
    is_leaving: bool

    @classmethod
    def read(cls, mark: bytes) -> Mark:
        """Return what a mark says."""
        is_leaving = b"/" not in mark
        disk, _, name = mark.partition(b"-" if is_leaving else b"/")
        return cls(disk.decode(errors="replace"), name, is_leaving)


def mark_of(disk: OtherDisk, name: bytes, *, is_leaving: bool = False) -> bytes:
    """Return the mark of the placeholder of a directory on ``disk``."""
    return disk.id.encode() + (b"-" if is_leaving else b"/") + name


def make_like(directory_fd: int, name: bytes, like: os.stat_result) -> None:
    """Give a directory the owner and mode of another."""
    if os.geteuid() == 0:
        os.chown(name, like.st_uid, like.st_gid, dir_fd=directory_fd, follow_symlinks=False)
    os.chmod(name, stat_module.S_IMODE(like.st_mode), dir_fd=directory_fd)
