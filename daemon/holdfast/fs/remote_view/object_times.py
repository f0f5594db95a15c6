"""The times of objects that this node has stored: a file shows its object's time from its close on, as all nodes do.

Many stores answer a PUT without the object's time. It is asked for when somebody first wants the attributes of the file;
until then the file is *awaited*. The time becomes the mtime of the backing file when nobody has that open: setting it
would hide a write by passthrough, and may have to wait for whoever holds the file's lock. Until then the open file shows it.

A time that a user has set stays until the bytes change (``Entry.mtime_is_set``).
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import NamedTuple

import trio

from holdfast.errors import HoldfastError, RemoteError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.index import CachedName, Entry, EntryState
from holdfast.remote import ObjectInfo
from holdfast.store import Stamp, stamp_of
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.transfer import KnownObject
from holdfast.zones import ZoneName

_MOST_AWAITED = 100_000
_MOST_GIVEN = 1000
_MOST_SET = 10_000
_MANY = 16
"""The number of awaited files from which on the store gets one LIST instead of a HEAD for each."""


class _Awaited(NamedTuple):
    """A stored object whose time is not known here."""

    name: ZoneName
    etag: str


class ObjectTimes:
    """Times of stored objects, by inode number of their files."""

    def __init__(self, base: Foundation) -> None:
        self._view, self._nodes, self._directories = base.view, base.nodes, base.directories
        self._entries, self._tree, self._invalidation = base.parts.index.entries, base.parts.store.tree, base.invalidation
        self._awaited: dict[FileId, _Awaited] = {}
        self._given: dict[FileId, tuple[Stamp, Stamp]] = {}
        """The stamps before and after a file got its object's time, by inode number, for uploads that began before."""
        self._set: dict[FileId, int] = {}
        """The mtimes that users have set last, by inode number: they count for files that still have them."""
        self._of_open: dict[FileId, tuple[_Awaited, int]] = {}
        """The times that open files show."""
        self.awaited: Container[FileId] = self._awaited
        """The inode numbers of files for which the store may have to be asked: see ``is_unknown``."""

    def stored(self, inode: FileId, node: Node | None, entry: Entry, name: ZoneName, info: ObjectInfo) -> None:
        """Note that the file ``inode`` was stored as ``info``; the caller writes ``entry``, which says so, next.

        ``node`` is the file's, if it has one.

        The logs and state of jobs are looked at all the time, by nobody who cares for their times: a LIST tells these.
        """
        awaited, shown_ns = _Awaited(name, info.etag), entry.mtime_ns
        if info.modified_ns:
            if not self._shown_by_open(node, inode, awaited, info.modified_ns):
                self._give(inode, node, entry, awaited, info.modified_ns)
        elif name.policy.revalidated:
            self._await(inode, entry, awaited)
        if node is not None and (node.opened is not None or inode in self._awaited or entry.mtime_ns != shown_ns):
            self._let_kernel_ask(node, entry)

    def _let_kernel_ask(self, node: Node, entry: Entry) -> None:
        """Let the kernel ask for the attributes of a file, unless it does so anyway for the times of a new one."""
        if node.mtime_is_told or not entry.size_bytes:
            self._invalidation.attributes_changed(node.id)

    def seen(self, inode: FileId, name: ZoneName, known: KnownObject) -> None:
        """Note that a listing has the object that the file ``inode`` is a copy of."""
        self._learned(inode, _Awaited(name, known.etag), known.modified_ns)

    def is_unknown(self, node: Node) -> bool:
        """Say whether the store must be asked for the time of an awaited file."""
        awaited = self._awaited.get(node.backing)
        return awaited is not None and not self._learn_from_listing(node.backing, awaited)

    async def learn(self, node: Node) -> None:
        """Ask for the time of a file, if it is unknown. If the store does not answer, a later LIST has it."""
        awaited = self._awaited.get(node.backing)
        if awaited is None or self._learn_from_listing(node.backing, awaited):
            return
        listing = self._view.listing(awaited.name.place)
        try:
            if len(self._awaited) < _MANY:
                key = self._view.object_of(awaited.name).key
                await listing.ask_about(awaited.name.name, key, retry=False)
            else:
                await listing.ask(trio.current_time(), retry=False)
        except RemoteError:
            pass
        if self._awaited.get(node.backing) == awaited and not self._learn_from_listing(node.backing, awaited):
            del self._awaited[node.backing]

    def set_here(self, node: Node, mtime_ns: int) -> None:
        """Note that a user has set the mtime of a file: it stays until the bytes change or the copy goes."""
        self._awaited.pop(node.backing, None)
        self._of_open.pop(node.backing, None)
        if node.opened is not None:
            node.opened.mtime_was_set(mtime_ns)
        if not node.backing:
            return
        self._set.pop(node.backing, None)
        if len(self._set) >= _MOST_SET:
            del self._set[next(iter(self._set))]
        self._set[node.backing] = mtime_ns
        entry = self._entries.get(node.backing)
        if entry is not None and entry.state is not EntryState.LOCAL:
            entry.mtime_is_set = True
            if entry.is_unsent:  # nothing tells the bytes by its time
                entry.mtime_ns = mtime_ns
            self._entries.put_if_room(node.backing, entry)

    def is_set(self, inode: FileId, mtime_ns: int, entry: Entry | None) -> bool:
        """Say whether the mtime of a file was set by a user. ``entry`` is what is known of it.

        A file may have no entry, as one with a temporary name, or one that says otherwise, as while it is sent.
        """
        if self._set.get(inode) == mtime_ns:
            return True
        return entry is not None and entry.mtime_is_set and entry.mtime_ns == mtime_ns

    def released(self, inode: FileId) -> None:
        """Note that the last handle of a file was released, and that its entry says whether its bytes are stored."""
        known = self._of_open.pop(inode, None)
        if known is not None:
            self._record(inode, *known)

    def only_time_was_set(self, since: Stamp, stat: FileStat) -> bool:
        """Say whether the file ``stat`` has only got its object's time since that stamp, and no other change."""
        return self._given.get(stat.st_ino) == (since, stamp_of(stat))

    def _await(self, inode: FileId, entry: Entry, awaited: _Awaited) -> None:
        earlier = self._awaited.get(inode)
        before = entry.name_at(earlier.name.path) if earlier is not None else None
        if earlier is not None and before is not None and before.etag == earlier.etag:
            return  # a link shows the time of the file that it was made of
        if len(self._awaited) >= _MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        self._awaited[inode] = awaited

    def _learn_from_listing(self, inode: FileId, awaited: _Awaited) -> bool:
        """Take the time from the cached listing if that has it by now, and say whether it has."""
        known = self._view.listing(awaited.name.place).object(awaited.name.name)
        if known is None or known.etag != awaited.etag or not known.modified_ns:
            return False
        self._learned(inode, awaited, known.modified_ns)
        return True

    def _learned(self, inode: FileId, awaited: _Awaited, modified_ns: int) -> None:
        if not self._shown_by_open(self._nodes.of_backing(inode), inode, awaited, modified_ns):
            self._record(inode, awaited, modified_ns)

    def _shown_by_open(self, node: Node | None, inode: FileId, awaited: _Awaited, modified_ns: int) -> bool:
        """Let a file that is open show its object's time, unless it is unsent; say whether it is open."""
        self._awaited.pop(inode, None)
        opened = node.opened if node is not None else None
        if opened is not None and not opened.unsent:
            opened.shows_mtime(modified_ns)
            self._of_open[inode] = awaited, modified_ns
        return opened is not None

    def _record(self, inode: FileId, awaited: _Awaited, modified_ns: int) -> None:
        """Give a file that is not open its object's time, and write that into its entry."""
        entry = self._entries.get(inode)
        if entry is not None and self._give(inode, self._nodes.of_backing(inode), entry, awaited, modified_ns):
            self._entries.put_if_room(inode, entry)

    def _give(self, inode: FileId, node: Node | None, entry: Entry, awaited: _Awaited, modified_ns: int) -> bool:
        """Give a file its object's time, on the disk and in ``entry``; say whether ``entry`` has changed.

        With several names the file keeps the time of one of them.
        """
        path = awaited.name.path
        cached = entry.name_at(path)
        may_be_set = entry.state is EntryState.CLEAN and not entry.mtime_is_set
        if cached is None or cached.etag != awaited.etag or not may_be_set:
            return False
        if len(entry.names) == 1 or not any(name.modified_ns and name.path != path for name in entry.names):
            given = self._set_mtime(path, inode, node, modified_ns)
            if given is None:
                return False
            before, after = given
            if entry.describes(before):  # otherwise the bytes were changed by someone else, which the next open must detect
                entry.mtime_ns, entry.ctime_ns = after.st_mtime_ns, after.st_ctime_ns
        entry.set_name(CachedName(path, cached.etag, modified_ns))
        return True

    def _set_mtime(
        self, path: bytes, inode: FileId, node: Node | None, modified_ns: int
    ) -> tuple[FileStat, FileStat] | None:
        """Set the mtime of a file, by any name, and return its attributes before and after.

        None if the name leads to another file or to none, or if the disk takes no writes.
        """
        try:
            if node is not None and node.parent is not None:
                return self._set_mtime_at(self._directories.descriptor(node.parent), node.name, inode, modified_ns)
            parent, _, name = path.rpartition(b"/")
            directory_fd = self._tree.open_directory(parent)
            try:
                return self._set_mtime_at(directory_fd, name, inode, modified_ns)
            finally:
                os.close(directory_fd)
        except (OSError, HoldfastError):
            return None

    def _set_mtime_at(
        self, directory_fd: int, name: bytes, inode: FileId, modified_ns: int
    ) -> tuple[FileStat, FileStat] | None:
        before = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
        if before.st_ino != inode:
            return None
        os.utime(name, ns=(before.st_atime_ns, modified_ns), dir_fd=directory_fd, follow_symlinks=False)
        after = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
        self._given.pop(inode, None)
        if len(self._given) >= _MOST_GIVEN:
            del self._given[next(iter(self._given))]
        self._given[inode] = stamp_of(before), stamp_of(after)
        return before, after
