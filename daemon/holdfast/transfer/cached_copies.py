"""The files in the tree that are copies of objects: placing them after a fetch, dropping them, putting them into quarantine.

Every change is one uninterrupted step on the event loop: file and entry change together, and the listener is told. Write
order: data (staged file), rename, entry. Delete order: entry, unlink. A crash in between leaves a file without an entry,
which counts as unknown and is compared with the store before it is served.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from holdfast.errors import FileBusyError, HoldfastError
from holdfast.index import CachedName, Entry, EntryState, Index
from holdfast.remote import ObjectInfo
from holdfast.store import StoreDirectory, keeping_mtime, note_digest
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer.partial_fetch import PartialFetch
from holdfast.transfer.remotes import Ownership
from holdfast.zones import ZoneMap, sidecar_of


class CopyListener(Protocol):
    """The part that is told when a name gains or loses its file without a request from the kernel."""

    def is_open(self, inode: FileId) -> bool:
        """Say whether anybody has the file ``inode`` open."""

    def remove_open(self, directory_fd: int, name: bytes, inode: FileId, *, is_last: bool, then: Callable[[], None]) -> None:
        """Remove a name of the open file ``inode``; if it is the last, keep the file for the next daemon.

        ``then`` is called if the name is removed after ``FileBusyError``.
        """

    def rename_out(
        self, inode: FileId, source_fd: int, old: bytes, target_fd: int, new: bytes, then: Callable[[], None]
    ) -> None:
        """Move the file ``inode``, open or not, out of the tree, to a name that is free; ``then`` as above."""

    def file_placed(self, path: bytes, stat: FileStat) -> None:
        """Note that the object at ``path`` now has the file ``stat``."""

    def file_left(self, path: bytes, inode: FileId, *, same_object: bool) -> None:
        """Note that the name ``path`` no longer leads to the file ``inode``, which lives on if it is open.

        With ``same_object`` the same bytes can be fetched again; otherwise the object is another one now, or gone.
        """

    def directory_emptied(self, path: bytes, inode: FileId) -> None:
        """Note that the directory at ``path`` exists only in the store from now on; its backing directory was ``inode``."""

    def file_corrupt(self, inode: FileId) -> None:
        """Serve the bytes of ``inode`` no more, not even through open handles."""


@dataclass(slots=True)
class CachedCopies:
    """The copies in the tree of ``store``; ``listener`` is told of each change in the step that makes it."""

    store: StoreDirectory
    index: Index
    events: EventLog
    counters: Counters
    zones: ZoneMap
    listener: CopyListener
    _watched: dict[int, list[bytes]] = field(default_factory=dict, init=False)

    @contextmanager
    def placements(self) -> Iterator[list[bytes]]:
        """Provide a list, to which the path of each copy is added that is placed until the block is left."""
        placed: list[bytes] = []
        self._watched[id(placed)] = placed
        try:
            yield placed
        finally:
            del self._watched[id(placed)]

    def place(self, fetch: PartialFetch, info: ObjectInfo) -> None:
        """Move the file of a finished, verified fetch into the tree, with the object's mtime.

        Raises ``OSError``: ``FileExistsError`` if a file has come to be there during the fetch.
        """
        assert fetch.fingerprint is not None
        target, digest = fetch.target, fetch.fingerprint.digest
        parent, _, name = target.path.rpartition(b"/")
        is_in_store = target.path == target.store_path
        directory_fd = self.store.tree.make_directories(
            parent, *target.remote.ownership.of_directories, since=self.store.implied_times if is_in_store else None
        )
        try:
            _set_attributes(fetch.fd, directory_fd, target.remote.ownership, info.modified_ns)
            if not is_in_store or fetch.expected is None:  # a check could not, or would not, ask for it
                note_digest(fetch.fd, digest)
            self.drop_sidecar(target.path, directory_fd)
            with keeping_mtime(directory_fd) if is_in_store else nullcontext():
                self.store.staging.place(fetch.staged_name, directory_fd, name)
            stat = file_stat(fetch.fd)
        finally:
            os.close(directory_fd)
        self.index.entries.put(
            stat.st_ino,
            Entry(
                EntryState.CLEAN,
                stat.st_size,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
                digest,
                [CachedName(target.path, info.etag, info.modified_ns)],
                verified_run=self.index.run,
                used_ns=time.time_ns(),
                on_probation=True,
            ),
        )
        for placed in self._watched.values():
            placed.append(target.path)
        self.listener.file_placed(target.path, stat)

    def is_open(self, inode: FileId) -> bool:
        """Say whether anybody has the file ``inode`` open."""
        return self.listener.is_open(inode)

    def drop(self, path: bytes, inode: FileId, *, same_object: bool = False) -> bool:
        """Drop this node's copy at ``path`` if it is still the file ``inode``; say whether it was.

        ``same_object``: the object is still the version that was copied (an eviction).
        """
        parent, _, name = path.rpartition(b"/")
        try:
            directory_fd = self.store.tree.open_directory(parent)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            with self._unseen(parent, directory_fd):
                return self._drop_at(directory_fd, name, path, inode, same_object)
        finally:
            os.close(directory_fd)

    def _unseen(self, directory: bytes, directory_fd: int) -> AbstractContextManager[None]:
        """Return the context of a change in the backing directory that does not change what users see of ``directory``.

        In a store's zone they see the objects, whether there are copies of them or not; in others, a copy that goes is a
        name that goes.
        """
        place = self.zones.place_of(directory)
        return keeping_mtime(directory_fd) if place is not None and place.zone.is_store else nullcontext()

    def drop_sidecar(self, path: bytes, directory_fd: int | None = None) -> None:
        """Drop Hadoop's checksum file of ``path``, whose content changes: without one, readers don't check.

        ``directory_fd`` is a descriptor of its directory, if the caller has one.
        """
        parent, _, last = path.rpartition(b"/")
        name = sidecar_of(last)
        sidecar = b"%s/%s" % (parent, name)
        try:
            if directory_fd is None:
                stat = self.store.tree.stat(sidecar)
            else:
                stat = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            if problem.errno == errno.ENAMETOOLONG:  # so there is no such file
                return
            raise
        if stat.st_nlink == 1:
            self.drop(sidecar, stat.st_ino)

    def _drop_at(self, directory_fd: int, name: bytes, path: bytes, inode: FileId, same_object: bool) -> bool:
        try:
            stat = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.st_ino != inode or not stat_module.S_ISREG(stat.st_mode):
            return False
        late = partial(self._dropped_late, path, stat, same_object=same_object)
        with self._forgotten(path, stat):
            if self.is_open(inode):
                self.listener.remove_open(directory_fd, name, inode, is_last=stat.st_nlink == 1, then=late)
            else:
                with self.store.freeing.later(name, directory_fd, stat):
                    os.unlink(name, dir_fd=directory_fd)
        self.listener.file_left(path, inode, same_object=same_object)
        return True

    def _dropped_late(self, path: bytes, stat: FileStat, *, same_object: bool) -> None:
        """Note that a copy is gone, after whoever dropped it was told that it is busy."""
        if self.store.tree.inode(path) != stat.st_ino:
            self.forget_name(path, stat)
            self.listener.file_left(path, stat.st_ino, same_object=same_object)

    def all_names_known(self, inode: FileId, entry: Entry) -> bool:
        """Say whether ``entry`` has all names (hard links) of the file ``inode``: then dropping them frees its bytes."""
        try:
            stats = [self.store.tree.stat(name.path) for name in entry.names]
        except (FileNotFoundError, NotADirectoryError):
            return False
        return all(stat.st_ino == inode and stat.st_nlink == len(stats) for stat in stats)

    def drop_directory(self, path: bytes) -> bool:
        """Drop a directory that no object implies any more, with the copies in it; say whether it is gone.

        Files that are not copies of objects (unsent, temporary) stay, and so do their directories.
        """
        for child, stat in list(self.store.tree.walk(path)):
            entry = self.index.entries.get(stat.st_ino)
            if entry is None or entry.state is not EntryState.CLEAN or not self.drop(child, stat.st_ino):
                return False
        gone = self.store.tree.remove_empty_directories(path)
        for directory, inode in gone:
            self.listener.file_left(directory, inode, same_object=False)
        return bool(gone) and gone[-1][0] == path

    def drop_emptied_directory(self, path: bytes, ownership: Ownership) -> bool:
        """Drop the directory at ``path`` if evictions have left it empty and it is as it was made for objects; say whether.

        The store has them still, so the directory does not disappear.
        """
        if self.store.tree.has_failed(path):
            return False
        parent, _, name = path.rpartition(b"/")
        try:
            self.store.tree.held.check(path)
            directory_fd = self.store.tree.open_directory(parent)
        except (FileNotFoundError, NotADirectoryError, FileBusyError):
            return False
        try:
            stat = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if self.index.marks.is_held(stat.st_ino) or not self._is_as_made(directory_fd, name, stat, ownership):
                return False
            with self._unseen(parent, directory_fd):
                self.store.tree.remove_directory(directory_fd, name)
            self.store.implied_times.keep(path, stat.st_mtime_ns)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise
            return False
        finally:
            os.close(directory_fd)
        self.listener.directory_emptied(path, stat.st_ino)
        return True

    def _is_as_made(self, directory_fd: int, name: bytes, stat: FileStat, ownership: Ownership) -> bool:
        """Say whether nobody has changed owner, mode or attributes of a directory that was made for objects."""
        above = file_stat(directory_fd)
        uid, gid = ownership.owner(above)
        is_owned = os.geteuid() != 0 or (stat.st_uid == uid and stat.st_gid in (gid, above.st_gid))
        mode = stat_module.S_IMODE(stat.st_mode) & ~stat_module.S_ISGID
        if not is_owned or mode != ownership.directory_mode & ~stat_module.S_ISGID:
            return False
        fd = self.store.tree.open_child(directory_fd, name)  # on whichever disk it is
        try:
            return not any(map(_is_users, os.listxattr(b"/proc/self/fd/%d/." % fd)))
        finally:
            os.close(fd)

    def forget_name(self, path: bytes, stat: FileStat) -> Entry | None:
        """Remove ``path`` from the entry of a file that is about to lose this name; return the entry as it was."""
        entry = self.index.entries.get(stat.st_ino)
        if entry is None:
            return None
        if stat.st_nlink <= 1:
            self.index.entries.discard(stat.st_ino)
            return entry
        before = copy(entry)
        entry.drop_name(path)
        self.index.entries.put(stat.st_ino, entry)
        return before

    def remember(self, inode: FileId, entry: Entry | None) -> None:
        """Undo ``forget_name``, which has returned this: the file has kept its name."""
        if entry is not None:
            self.index.entries.put_if_room(inode, entry)

    @contextmanager
    def _forgotten(self, path: bytes, stat: FileStat) -> Iterator[None]:
        """Forget a name that is removed in this block. If that fails, or comes late, it is known again."""
        entry = self.forget_name(path, stat)
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, HoldfastError):
            self.remember(stat.st_ino, entry)
            raise

    def quarantine(self, path: bytes, inode: FileId, reason: dict[str, str]) -> None:
        """Move a file that must not be served out of the tree, and record why. If it is gone already, do nothing."""
        parent, _, name = path.rpartition(b"/")
        directory_fd = self.store.tree.open_directory(parent)
        try:
            stat = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
            if stat.st_ino != inode:
                return
            taken = partial(self._quarantined, path, stat, reason)
            rename = partial(self.listener.rename_out, inode)
            with self._unseen(parent, directory_fd), self._forgotten(path, stat):
                self.store.quarantine.take(directory_fd, name, {**reason, "path": os.fsdecode(path)}, taken, rename)
        except FileNotFoundError:
            return
        finally:
            os.close(directory_fd)

    def _quarantined(self, path: bytes, stat: FileStat, reason: dict[str, str], kept: str) -> None:
        self.forget_name(path, stat)  # again if it comes late
        self.listener.file_corrupt(stat.st_ino)
        self.listener.file_left(path, stat.st_ino, same_object=True)
        self.counters.corrupt_dropped += 1
        self.events.emit("quarantined", path=os.fsdecode(path), kept=kept, **reason)


def _is_users(attribute: str) -> bool:
    return attribute.startswith(("user.", "trusted.")) and not attribute.startswith("user.holdfast.")


def _set_attributes(fd: int, directory_fd: int, ownership: Ownership, modified_ns: int) -> None:
    uid, gid = ownership.owner(file_stat(directory_fd))
    os.fchmod(fd, ownership.file_mode)
    if os.geteuid() == 0:
        os.fchown(fd, uid, gid)
    if modified_ns:
        os.utime(fd, ns=(modified_ns, modified_ns))
