"""Which objects this node has, and as which files: placing what arrived, dropping what must go, telling who listens.

Every change is one uninterrupted step on the event loop: file and entry change together. Write order: data (staged
file), rename, entry. Delete order: entry, unlink. What a crash leaves between the two is a file without an entry,
which counts as unknown and is compared with the store before it is served.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from typing import Protocol

from holdfast.index import CachedName, Entry, EntryState, Index
from holdfast.remote import ObjectInfo
from holdfast.store import StoreDirectory
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.partial_fetch import PartialFetch
from holdfast.transfer.remotes import Ownership
from holdfast.zones import sidecar_of


class CopyListener(Protocol):
    """Who must know that a name got a file, or lost it, without a request of the kernel's."""

    def is_open(self, inode: int) -> bool:
        """Say whether anybody has the file ``inode`` open."""

    def file_placed(self, path: bytes, stat: os.stat_result) -> None:
        """The object at ``path`` now has the file ``stat``."""

    def file_left(self, path: bytes, inode: int, *, same_object: bool) -> None:
        """The name ``path`` no longer leads to the file ``inode``, which lives on if it is open.

        With ``same_object`` the same bytes can be fetched again; otherwise the name stands for something else now.
        """

    def file_corrupt(self, inode: int) -> None:
        """The bytes of ``inode`` must not be served any more, not even to those who have it open."""


class CachedCopies:
    """The files of objects. ``listener`` is set once, before the first request."""

    listener: CopyListener

    def __init__(self, store: StoreDirectory, index: Index, events: EventLog, counters: Counters) -> None:
        self._tree = store.tree
        self._staging = store.staging
        self._orphanage = store.orphanage
        self._quarantine = store.quarantine
        self._index = index
        self._events = events
        self._counters = counters

    def place(self, arrival: PartialFetch, info: ObjectInfo) -> None:
        """Put a whole and verified arrival where it belongs, with the store's time. Raises ``OSError``."""
        target = arrival.target
        parent, _, name = target.path.rpartition(b"/")
        directory_fd = self.make_directories(parent, target.remote.ownership)
        try:
            _dress(arrival.fd, directory_fd, target.remote.ownership, info.modified_ns)
            self.drop_sidecar(target.path)
            self._staging.place(arrival.staged_name, directory_fd, name)
            stat = os.fstat(arrival.fd)
        finally:
            os.close(directory_fd)
        assert arrival.fingerprint is not None
        self._index.entries.put(
            stat.st_ino,
            Entry(
                EntryState.CLEAN,
                stat.st_size,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
                arrival.fingerprint.digest,
                [CachedName(target.path, info.etag, info.modified_ns)],
                verified_run=self._index.run,
                used_ns=time.time_ns(),
            ),
        )
        self.listener.file_placed(target.path, stat)

    def make_directories(self, path: bytes, ownership: Ownership) -> int:
        """Create what is missing of a directory that the store implies; return an ``O_PATH`` descriptor."""
        return self._tree.make_directories(path, ownership.directory_mode, ownership.uid, ownership.gid)

    def drop(self, path: bytes, inode: int, *, same_object: bool = False) -> bool:
        """Drop this node's copy at ``path``, if it is still the file ``inode``; say whether it was.

        ``same_object``: the object is still what the copy was made of (an eviction).
        """
        parent, _, name = path.rpartition(b"/")
        try:
            directory_fd = self._tree.open_directory(parent)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            return self._drop_at(directory_fd, name, path, inode, same_object)
        finally:
            os.close(directory_fd)

    def drop_sidecar(self, path: bytes) -> None:
        """Drop Hadoop's checksum of the file at ``path``, which gets another content: without one, readers don't check."""
        parent, _, name = path.rpartition(b"/")
        sidecar = b"%s/%s" % (parent, sidecar_of(name))
        try:
            stat = self._tree.stat(sidecar)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:  # nor can it be there
                return
            raise
        if stat.st_nlink == 1:
            self.drop(sidecar, stat.st_ino)

    def _drop_at(self, directory_fd: int, name: bytes, path: bytes, inode: int, same_object: bool) -> bool:
        try:
            stat = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.st_ino != inode or not stat_module.S_ISREG(stat.st_mode):
            return False
        self.forget_name(path, stat)
        if stat.st_nlink == 1 and self.listener.is_open(inode):
            self._orphanage.take(directory_fd, name, inode)
        else:
            os.unlink(name, dir_fd=directory_fd)
        self.listener.file_left(path, inode, same_object=same_object)
        return True

    def all_names_known(self, inode: int, entry: Entry) -> bool:
        """Say whether the names of ``entry`` are all that the file ``inode`` has: then dropping them frees its bytes."""
        try:
            stats = [self._tree.stat(name.path) for name in entry.names]
        except (FileNotFoundError, NotADirectoryError):
            return False
        return all(stat.st_ino == inode and stat.st_nlink == len(stats) for stat in stats)

    def drop_directory(self, path: bytes) -> bool:
        """Drop a directory that no object implies any more, with the copies in it; say whether it is gone.

        What is not a copy of an object (unsent files, temporary ones) stays, and keeps its directories.
        """
        for child, stat in list(self._tree.walk(path)):
            entry = self._index.entries.get(stat.st_ino)
            if entry is None or entry.state is not EntryState.CLEAN or not self.drop(child, stat.st_ino):
                return False
        gone = self._tree.remove_empty_directories(path)
        for directory, inode in gone:
            self.listener.file_left(directory, inode, same_object=False)
        return bool(gone) and gone[-1][0] == path

    def forget_name(self, path: bytes, stat: os.stat_result) -> None:
        """Take the name ``path`` out of the entry of a file that is about to lose it."""
        entry = self._index.entries.get(stat.st_ino)
        if entry is None:
            return
        if stat.st_nlink <= 1:
            self._index.entries.discard(stat.st_ino)
        else:
            entry.drop_name(path)
            self._index.entries.put(stat.st_ino, entry)

    def quarantine(self, path: bytes, inode: int, reason: dict[str, str]) -> None:
        """Take a file that must not be served out of the tree, and record why. It may be gone already."""
        parent, _, name = path.rpartition(b"/")
        directory_fd = self._tree.open_directory(parent)
        try:
            stat = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if stat.st_ino != inode:
                return
            self.forget_name(path, stat)
            kept = self._quarantine.take(directory_fd, name, {**reason, "path": os.fsdecode(path)})
            self.listener.file_corrupt(inode)
            self.listener.file_left(path, inode, same_object=True)
        except FileNotFoundError:
            return
        finally:
            os.close(directory_fd)
        self._counters.corrupt_dropped += 1
        self._events.emit("quarantined", path=os.fsdecode(path), kept=kept, **reason)


def _dress(fd: int, directory_fd: int, ownership: Ownership, modified_ns: int) -> None:
    uid, gid = ownership.owner(os.stat(directory_fd))
    os.fchmod(fd, ownership.file_mode)
    if os.geteuid() == 0:
        os.fchown(fd, uid, gid)
    if modified_ns:
        os.utime(fd, ns=(modified_ns, modified_ns))
