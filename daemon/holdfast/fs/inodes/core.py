"""What the parts of the file system share, put together once."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from holdfast.capacity import Room
from holdfast.config import Config
from holdfast.errors import NameNotStorableError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.locks import NodeLock, NodeLocks
from holdfast.fs.inodes.node_store import NodeStore
from holdfast.fs.inodes.nodes import Node, NodeTable, path_of
from holdfast.fs.inodes.pending_unlinks import PendingUnlinks
from holdfast.index import Entry, EntryState, Index
from holdfast.session import SessionTables
from holdfast.store import StoreDirectory
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import CachedCopies, CachedListing, Fetcher, ObjectPath, Remote, Uploader
from holdfast.zones import NameKind, NameTable, Zone, ZoneMap, ZonePath

LOCAL_KINDS = frozenset({NameKind.TEMPORARY, NameKind.SIDECAR})
"""Kinds of names that never leave this node."""


class Caller(NamedTuple):
    """Who makes a request: ``pid`` is the thread's id."""

    uid: int
    gid: int
    pid: int


NOBODY = Caller(0, 0, 0)
"""A caller of whom nothing is expected."""


@dataclass(slots=True)
class Core:
    """The parts below the file system, and the few questions that all of its parts ask of them."""

    config: Config
    store: StoreDirectory
    index: Index
    session: SessionTables
    zones: ZoneMap
    names: NameTable
    remotes: Mapping[str, Remote]
    residence: CachedCopies
    room: Room
    fetcher: Fetcher
    uploader: Uploader
    events: EventLog
    counters: Counters
    nodes: NodeTable = field(init=False)
    directories: Directories = field(init=False)
    removals: PendingUnlinks = field(init=False)
    _locks: NodeLocks = field(init=False, default_factory=NodeLocks)
    is_root: bool = field(init=False, default_factory=lambda: os.geteuid() == 0)

    def __post_init__(self) -> None:
        self.nodes = NodeTable(os.fstat(self.store.tree.root_fd).st_ino, self.index.run)
        seconds = self.config.remote.metadata_ttl_seconds
        self.directories = Directories(self.nodes, self.store.tree, self.zones, self.residence, seconds)
        self.nodes.left = self.directories.forget
        self.nodes.keeper = NodeStore(self.session.records)
        self.removals = PendingUnlinks(self.session.removals, time.monotonic)
        self.nodes.reserved = self.removals.gone

    def remote_of(self, zone: Zone) -> Remote:
        """Return the store behind a zone that has one."""
        assert zone.remote is not None
        return self.remotes[zone.remote]

    def kind_of(self, place: ZonePath, name: bytes) -> NameKind:
        """Return the kind of the name ``name`` in the directory at ``place``."""
        return self.names.kind_of(place.key_of(name))

    def sends(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a file at this name is, or becomes, an object."""
        return place.zone.sends and self.kind_of(place, name) not in LOCAL_KINDS

    def has_digest(self, node: Node) -> bool:
        """Say whether the bytes of a node are held against a digest."""
        for parent, name in node.names():
            place = self.directories.place(parent)
            if place.zone.digests and not (place.zone.sends and self.kind_of(place, name) in LOCAL_KINDS):
                return True
        return False

    def object_at(self, place: ZonePath, name: bytes) -> ObjectPath:
        """Return the object at this name. Raises ``NameNotStorableError``."""
        path = place.child_path(name)
        return ObjectPath(path, self.remote_of(place.zone), key_text(place.zone.key_of(path)))

    def listing(self, place: ZonePath) -> CachedListing:
        """Return what is believed of the store's directory behind ``place``. Raises ``NameNotStorableError``."""
        return self.remote_of(place.zone).directories.get(key_text(place.zone.key_of(place.path)))

    def made_directory(self, place: ZonePath) -> None:
        """The directory at ``place`` was made here, under a name that was free. Raises ``NameNotStorableError``.

        Nothing hides it any more. The store has none, unless it has one that was hidden.
        """
        was_hidden = self.index.marks.is_whited_out(place.path)
        self.index.marks.uncover(place.path)
        if not (place.zone.is_store and was_hidden):
            self.listing(place).believe_empty()

    def writable_descriptor(self, directory: Node) -> int:
        """Return the descriptor of a directory that is about to change; one that only objects imply is created."""
        zone = self.directories.place(directory).zone
        if directory.backing or zone.remote is None:
            return self.directories.descriptor(directory)
        return self.directories.backed_descriptor(directory, self.remote_of(zone).ownership)

    def lock(self, node: Node) -> NodeLock:
        """Return the lock that slow operations on a node hold (fetch, verification, commit)."""
        return self._locks.of(node)

    def local_stat(self, directory: Node, name: bytes) -> os.stat_result | None:
        """Lstat of an entry in the tree; None when it is not there."""
        if directory.backing == 0:
            return None
        try:
            return os.stat(name, dir_fd=self.directories.descriptor(directory), follow_symlinks=False)
        except FileNotFoundError:
            return None

    async def sync_directory(self, directory: Node) -> None:
        """Sync the names in a directory of the tree to the disk."""
        if directory.backing == 0:
            return
        fd = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.directories.descriptor(directory))
        try:
            await trio.to_thread.run_sync(os.fsync, fd)
        finally:
            os.close(fd)

    def lost_directory(self, parent: Node, name: bytes, inode: int) -> None:
        """Bring the nodes up to date after the directory ``inode``, which was at this name, is gone from the tree."""
        node = self.nodes.of_backing(inode)
        if node is None:
            self.removals.gone.add(inode)
            return
        self.directories.forget(node)
        self.nodes.drop_name(node, parent, name)
        self.nodes.unbind(node)

    def refresh_entry(self, before: os.stat_result, after: os.stat_result) -> Entry | None:
        """A change that left the bytes alone (a link, a rename, a mode) has moved ctime: let the entry follow; return it.

        An entry that did not describe the file ``before`` does not follow: somebody else has changed the bytes.
        """
        entry = self.index.entries.get(after.st_ino)
        if entry is not None and entry.describes(before) and entry.ctime_ns != after.st_ctime_ns:
            entry.ctime_ns = after.st_ctime_ns
            entry.mtime_ns = after.st_mtime_ns
            self.index.entries.put(after.st_ino, entry)
        return entry

    def mark_dirty(self, stat: os.stat_result, path: bytes | None) -> Entry:
        """Note that the bytes of the file at ``path`` are about to change, or have; return its entry."""
        entry = self.index.entries.get(stat.st_ino)
        if entry is None:
            entry = Entry(EntryState.DIRTY, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        elif entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
        entry.digest = b""
        entry.path = path or entry.path
        self.index.entries.put(stat.st_ino, entry)
        return entry

    def note_change(self, node: Node, fd: int) -> None:
        """Note that the bytes of a file, open as ``fd``, are about to change, or have, if they are held against a digest.

        Where no known name of it asks for a digest, one that has gone may have, or one that nobody has looked up.
        """
        stat = os.fstat(fd)
        if self.has_digest(node) or self.index.entries.get(stat.st_ino) is not None:
            self.mark_dirty(stat, path_of(node))

    def now_ns(self) -> int:
        """Return the time of day, for last uses."""
        return time.time_ns()


def key_text(key: bytes) -> str:
    """Return an object key as text. Raises ``NameNotStorableError`` for names that no store can keep."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        raise NameNotStorableError(f"{key!r} is not UTF-8: object stores can't keep such a name") from None
    if any(character < " " or character == "\x7f" for character in text):
        raise NameNotStorableError(f"{key!r} has a control character: object stores can't keep such a name")
    return text
