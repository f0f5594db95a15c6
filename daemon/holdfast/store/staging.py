"""Files outside the tree: arriving (``fetching/``), nameless but open (``orphans/``), to be deleted (``trash/``).

All three are on each disk that files of the tree are on, as ``quarantine/`` is (``Area``). A file is renamed and linked
within its disk alone. So what leaves the tree goes, in one step, to the directory on the disk that it is on.

A crash leaves files behind that are no longer needed: ``clear`` removes them at the start, before the mount exists. A
takeover keeps the orphans that are open.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from holdfast.store.outside_calls import OutsideCalls
from holdfast.store.outside_process import SHELTERED
from holdfast.store.removal import remove
from holdfast.store.space import NO_ROOM, Freeing, ignoring_full_disk
from holdfast.store.unneeded import Unneeded
from holdfast.system.file_id import FileId, disk_of, file_stat
from holdfast.system.syscalls import RENAME_NOREPLACE, rename_with_flags, rewound

_OWN = b".d"
"""The end of the names of directories for one orphan."""
_ASIDE = b"aside-"
"""The beginning of the names in the trash of what could not be deleted."""


class Place(NamedTuple):
    """A directory of these on another disk: the disk's number and device, and a descriptor that the caller owns."""

    disk: int
    device: int
    fd: int


class Area:
    """One of these directories on all disks: ``first_fd`` on the store directory's own disk, ``others`` on other disks."""

    def __init__(self, first_fd: int, others: Iterable[Place] = ()) -> None:
        self.first_fd = first_fd
        self._others = {place.disk: place for place in others}
        self.is_spread = bool(self._others)

    def of(self, file: FileId) -> int:
        """Return the descriptor of the directory on the disk that ``file`` is on."""
        return self.on(disk_of(file)) if self.is_spread else self.first_fd

    def on(self, disk: int) -> int:
        """Return the descriptor of the directory on the disk with this number."""
        place = self._others.get(disk)
        return self.first_fd if place is None else place.fd

    def beside(self, fd: int) -> int:
        """Return the descriptor of the directory on the disk that the file or directory ``fd`` is on. Raises ``OSError``."""
        if self.is_spread:
            device = os.fstat(fd).st_dev
            for place in self._others.values():
                if place.device == device:
                    return place.fd
        return self.first_fd

    def all(self) -> list[int]:
        """Return the descriptors of all, that of the store directory's own disk first."""
        return [self.first_fd, *(place.fd for place in self._others.values())]

    @contextmanager
    def unless_failed(self, fd: int) -> Iterator[None]:
        """Suppress errors of another disk than the first, which may be broken: the rest goes on without it."""
        try:
            yield
        except OSError:
            if fd == self.first_fd:
                raise


class Staging:
    """Files that arrive from a store. They have temporary names until they are complete and verified."""

    def __init__(
        self, directory_fd: int, others: Iterable[Place] = (), disk_at: Callable[[bytes], int] = lambda _: 0
    ) -> None:
        """``disk_at`` returns the number of the disk that a path in the tree is on."""
        self._area = Area(directory_fd, others)
        self._disk_at = disk_at
        self._numbers = itertools.count(1)
        self._unneeded = Unneeded()
        self._elsewhere: dict[bytes, int] = {}
        """The descriptors of the directories of those files that are on other disks, by name."""

    def create(self, size_bytes: int, target: bytes = b"") -> tuple[bytes, int]:
        """Create a file with room for ``size_bytes``; return its name and a read-write descriptor.

        It is on the disk of the path ``target`` in the tree. Raises ``OSError`` with ENOSPC if the disk has no room, and
        leaves nothing behind.
        """
        name = b"%d" % next(self._numbers)
        directory_fd = self._area.on(self._disk_at(target)) if self._area.is_spread else self._area.first_fd
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
        if directory_fd != self._area.first_fd:
            self._elsewhere[name] = directory_fd
        try:
            if size_bytes:
                os.posix_fallocate(fd, 0, size_bytes)
        except OSError:
            os.close(fd)
            self.discard(name)
            raise
        return name, fd

    def place(self, name: bytes, target_fd: int, target: bytes) -> None:
        """Move a complete file to its place in the tree. Raises ``OSError``: ``FileExistsError`` if the place is taken."""
        rename_with_flags(self._elsewhere.get(name, self._area.first_fd), name, target_fd, target, RENAME_NOREPLACE)
        self._elsewhere.pop(name, None)

    def discard(self, name: bytes) -> None:
        """Remove a file that is not needed, if it still exists: now, or once the disk takes it."""
        self._unneeded.remove(name, self._elsewhere.pop(name, self._area.first_fd))

    def clear(self) -> int:
        """Remove everything; return how many files there were."""
        return sum(_clear(fd) for fd in self._area.all())


class Orphanage:
    """Files whose last name was removed while they were open: kept under their inode number until closed.

    One whose inode's lock a user may hold has the name ``file`` in a directory ``N.d`` (``outside_process.shelter``).
    """

    def __init__(self, directory_fd: int, calls: OutsideCalls, others: Iterable[Place] = ()) -> None:
        self._area = Area(directory_fd, others)
        self.directory_of = self._area.of
        """Returns the descriptor of the directory that a file comes to."""
        self._calls = calls
        self._unneeded = Unneeded()

    def take(self, source_fd: int, name: bytes, inode: FileId) -> None:
        """Move the last name of ``inode`` here. Raises ``OSError``.

        If the disk has no room for a name here, the other one goes all the same: to delete must be possible on a full disk.
        So it is with ``shelter`` and ``shelter_open``. The file stays while it is open, and is lost to the next daemon.
        """
        own, directory_fd = self._vacant(inode)
        try:
            os.rename(name, own, src_dir_fd=source_fd, dst_dir_fd=directory_fd)
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
            os.unlink(name, dir_fd=source_fd)

    def shelter(self, source_fd: int, name: bytes, inode: FileId) -> None:
        """Give ``inode`` a second name here, so that the first may be renamed over. Raises ``OSError``."""
        self.release(inode)
        own, directory_fd = self._vacant(inode)
        with ignoring_full_disk():
            os.link(name, own, src_dir_fd=source_fd, dst_dir_fd=directory_fd, follow_symlinks=False)

    def shelter_open(self, fd: int, inode: FileId) -> None:
        """Give ``inode``, which is open as ``fd``, a name here; its others are about to go. Raises ``OSError``."""
        own, directory_fd = self._vacant(inode)
        with ignoring_full_disk():
            os.link(f"/proc/self/fd/{fd}", own, dst_dir_fd=directory_fd, follow_symlinks=True)

    def release(self, inode: FileId) -> None:
        """Remove the name here, now or once the disk takes it; the file is freed with its last descriptor."""
        directory_fd = self._area.of(inode)
        if not self._unneeded.remove(b"%d" % inode, directory_fd):
            self._discard(own_directory(inode), directory_fd)

    def _vacant(self, inode: FileId) -> tuple[bytes, int]:
        """Return the name that ``inode`` gets here, and the directory. Raises ``OSError``."""
        name, directory_fd = b"%d" % inode, self._area.of(inode)
        self._unneeded.make_way(name, directory_fd)
        return name, directory_fd

    def _discard(self, name: bytes, directory_fd: int) -> None:
        """Remove a directory for one file, if it exists, without waiting: a call of an earlier daemon may have its lock.

        If there is no process for that now, the next start does it.
        """
        with suppress(OSError):
            file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
            self._calls.begin("discard", [directory_fd], name).close()

    def inodes(self) -> set[FileId]:
        """Return which files are here."""
        found: set[FileId] = set()
        for fd in self._area.all():
            with self._area.unless_failed(fd):
                found.update(FileId(int(name.removesuffix(_OWN))) for name in _names(fd))
        return found

    def open(self, inode: FileId) -> int:
        """Return a new descriptor, for reading and writing, of a file here. Raises ``OSError``."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        directory_fd = self._area.of(inode)
        try:
            return os.open(b"%d" % inode, flags, dir_fd=directory_fd)
        except FileNotFoundError:
            return os.open(own_directory(inode) + b"/" + SHELTERED, flags, dir_fd=directory_fd)

    def clear(self) -> int:
        """Remove everything; return how many files there were."""
        count = 0
        for fd in self._area.all():
            for name in _names(fd):
                if name.endswith(_OWN):
                    self._discard(name, fd)
            count += _clear(fd, spared=_OWN)
        return count


def own_directory(inode: FileId) -> bytes:
    """Return the name of a directory among the orphans for the file ``inode`` alone."""
    return b"%d" % inode + _OWN


class Trash:
    """Directory trees that are no longer visible and wait to be deleted."""

    def __init__(self, directory_fd: int, freeing: Freeing, others: Iterable[Place] = ()) -> None:
        self._area = Area(directory_fd, others)
        self._freeing = freeing
        self._numbers = itertools.count(1)
        self._emptying = threading.Lock()
        self._failures: list[str] = []
        self._kept: set[bytes] = set()
        """The names of entries that came in this step of the event loop: what is open in them has no name elsewhere yet."""

    def throw(self, source_fd: int, name: bytes) -> None:
        """Move the entry ``name`` here in one step. It is kept until ``give_up``. Raises ``OSError``."""
        directory_fd = self._area.beside(source_fd)
        while True:
            number = b"%d" % next(self._numbers)
            self._kept.add(number)  # before a thread that is emptying the trash can see it
            try:
                rename_with_flags(source_fd, name, directory_fd, number, RENAME_NOREPLACE)
                return
            except FileExistsError:
                continue

    def give_up(self) -> None:
        """Let everything that was thrown here be deleted: the orphans have what is open in it."""
        self._kept = set()

    def empty(self, hot: Container[FileId] = ()) -> int:
        """Delete everything in the trash, but what was set aside; return how many entries.

        What can't be deleted is set aside under another name and not tried again (``take_failures``). Files whose inode
        numbers are in ``hot`` are left for the next time; then it raises ``OSError`` with EBUSY at the end. It waits for the
        disk: call it in a thread.
        """
        with self._emptying:
            count = 0
            spared: list[bytes] = []
            for fd in self._area.all():
                with self._area.unless_failed(fd):
                    count += self._empty(fd, hot, spared)
            if spared:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), spared[0])
            return count

    def _empty(self, directory_fd: int, hot: Container[FileId], spared: list[bytes]) -> int:
        names = [name for name in _names(directory_fd) if not name.startswith(_ASIDE) and name not in self._kept]
        for name in names:
            before = len(spared)
            try:
                remove(directory_fd, name, partial(self._unlink, hot, spared))
            except OSError as problem:
                if len(spared) == before:
                    self._set_aside(directory_fd, name, problem)
        return len(names)

    def _unlink(self, hot: Container[FileId], spared: list[bytes], name: bytes, directory_fd: int) -> None:
        if hot and file_stat(name, dir_fd=directory_fd, follow_symlinks=False).st_ino in hot:
            spared.append(name)
            return
        self._freeing.unlink(name, directory_fd)

    def take_failures(self) -> list[str]:
        """Return what was set aside since the last call, and why, a line each."""
        failures, self._failures = self._failures, []
        return failures

    def _set_aside(self, directory_fd: int, name: bytes, problem: OSError) -> None:
        aside = _ASIDE + uuid.uuid4().hex.encode()
        with suppress(OSError):
            os.rename(name, aside, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
            self._failures.append(f"trash/{aside.decode()}: {problem.strerror}")


def _clear(directory_fd: int, spared: bytes = b"/") -> int:
    """Remove everything in the directory, except what can't be removed, and names that end with ``spared``."""
    names = [name for name in _names(directory_fd) if not name.endswith(spared)]
    for name in names:
        with suppress(OSError):
            remove(directory_fd, name)
    return len(names)


def _names(directory_fd: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(rewound(directory_fd))]
