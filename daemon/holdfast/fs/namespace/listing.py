"""Listing directories, with positions that stay right while entries come and go.

Where only this daemon changes a directory, its backing directory can be read as it is (``is_plain``,
``fuse.readdir_replies``). Here is the rest: what a store has a part in, and what a file system holds whose own offsets don't
last. Entries are in the order of a number made from the name alone, which is also their offset. So a listing can go on
after any change, over any number of handles, and in another run of the daemon: what is there all the time is listed once.
A snapshot of the sorted names is kept while the directory is open, and taken anew whenever somebody begins at the start.
"""

from __future__ import annotations

import bisect
import os
import stat as stat_module
from collections.abc import Iterable, Iterator, Mapping

import trio

from holdfast.digest import POSITION_BITS, position_of
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.nodes import Node, NodeTable
from holdfast.fs.inodes.time_to_live import TimeToLive
from holdfast.fs.namespace.lookup import Found, Lookup
from holdfast.fs.namespace.object_copies import ObjectCopies
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.fs.remote_view.visibility import Visibility
from holdfast.index import NameMarks
from holdfast.transfer import CachedCopies
from holdfast.zones import ZonePath

_DOT, _DOTDOT, _FIRST_POSITION = 1, 2, 3
"""Offsets after "." and "..", and the lowest after anything else."""
_LARGE_DIRECTORY_BYTES = 128 * 1024
_LARGE_DIRECTORY = 2000  # names, that take 5 ms to be put in order
_BUCKET_BITS = 10
_KINDS = 16
_UNKNOWN, _DIRECTORY, _REGULAR, _SYMLINK = 0, 4, 8, 10  # readdir(3)


Bare = tuple[bytes, int, int, int]
"""An entry without attributes: name, inode number, kind (one of readdir(3)'s DT_*), and the offset after it."""


class _Snapshot:
    __slots__ = ("files", "handles", "names", "positions")

    def __init__(self) -> None:
        self.handles = 0
        self.positions: list[int] = []
        self.names: list[bytes] = []
        self.files: Mapping[bytes, int] = {}
        """What ``Listings.names`` returned."""

    def take(self, files: Mapping[bytes, int], ordered: tuple[list[int], list[bytes]]) -> None:
        self.files = files
        self.positions, self.names = ordered


class Listings:
    """Open directories."""

    def __init__(
        self,
        directories: Directories,
        nodes: NodeTable,
        policy: NamePolicy,
        view: StoreView,
        visibility: Visibility,
        lookup: Lookup,
        object_copies: ObjectCopies,
        cached_copies: CachedCopies,
        marks: NameMarks,
        ttl: TimeToLive,
    ) -> None:
        self._directories = directories
        self._nodes = nodes
        self._policy = policy
        self._view = view
        self._visibility = visibility
        self._lookup = lookup
        self._object_copies = object_copies
        self._cached_copies = cached_copies
        self._marks = marks
        self._ttl = ttl
        self._snapshots: dict[int, _Snapshot] = {}

    def open(self, node: Node) -> None:
        """opendir(3): keep a place for the snapshot."""
        self._snapshots.setdefault(node.id, _Snapshot()).handles += 1

    def release(self, node_id: int) -> None:
        """closedir(3)."""
        snapshot = self._snapshots.get(node_id)
        if snapshot is not None:
            snapshot.handles -= 1
            if snapshot.handles <= 0:
                del self._snapshots[node_id]

    async def prepare(self, node: Node, offset: int) -> None:
        """Make the snapshot fit to go on at ``offset``. Raises ``RemoteError`` when the store does not answer."""
        snapshot = self._snapshots.get(node.id)
        if offset != 0 and snapshot is not None and snapshot.names and not self._is_forgotten(node):
            return
        files = await self.names(node)
        is_large = len(files) > _LARGE_DIRECTORY
        in_order = await trio.to_thread.run_sync(ordered, files) if is_large else ordered(files)
        # Only now: a handle of the daemon before, which is not counted, may have been released meanwhile.
        self._snapshots.setdefault(node.id, _Snapshot()).take(files, in_order)

    def entries(self, node: Node, offset: int) -> Iterator[tuple[bytes, Found, int]]:
        """Yield name, what it leads to, and the offset after it, from ``offset`` on; ``prepare`` comes first."""
        snapshot = self._snapshots[node.id]
        for index in range(bisect.bisect_right(snapshot.positions, offset), len(snapshot.names)):
            name = snapshot.names[index]
            found = self.entry(node, name)
            if found is not None:
                yield name, found, snapshot.positions[index]

    def bare(self, node: Node, offset: int) -> Iterator[Bare]:
        """Yield the entries from ``offset`` on without attributes; ``prepare`` comes first."""
        place = self._directories.place(node)
        listing = self._view.listing(place) if place.zone.is_store else None
        of_backing = self._nodes.of_backing
        snapshot = self._snapshots[node.id]
        positions, names, files = snapshot.positions, snapshot.names, snapshot.files
        for index in range(bisect.bisect_right(positions, offset), len(names)):
            name, position = names[index], positions[index]
            file = files[name]
            inode = file // _KINDS
            if inode and (listing is None or name in listing):
                known = of_backing(inode)
                yield name, known.id if known is not None else inode, file % _KINDS, position
            elif (bare := self._bare_of_store(node, place, name, position)) is not None:
                yield bare

    def is_plain(self, node: Node) -> bool:
        """Say whether what is to be shown is all that is in the backing directory, and nothing else."""
        return node is not self._nodes.root and self._directories.is_ours(node)

    async def names(self, node: Node) -> Mapping[bytes, int]:
        """Return all names in a directory, here and in its store: inode number and kind (DT_*) of each in one number.

        It is 0 for what exists only in the store.
        """
        place = self._directories.place(node)
        files: dict[bytes, int] = {}
        if place.zone.is_store:
            listing = self._view.listing(place)
            await listing.ask(self._ttl.oldest_listing(place))
            hidden = await self._visibility.hidden_names(place)
            files = dict.fromkeys(self._view.listing(place).all_names(), 0)
            for name in hidden:
                files.pop(name, None)
        if node.backing:
            path = self._path(node)
            files |= await trio.to_thread.run_sync(_scanned, path) if self._is_large(node) else _scanned(path)
        return self._visibility.shown(place, files)

    def _is_forgotten(self, node: Node) -> bool:
        """Say whether what the store has told is no longer known here: nothing may be missed, or dropped, for that."""
        place = self._directories.place(node)
        return place.zone.is_store and not self._view.listing(place).is_known

    def _is_large(self, node: Node) -> bool:
        return os.stat(self._directories.descriptor(node)).st_size > _LARGE_DIRECTORY_BYTES

    def _path(self, node: Node) -> bytes:
        return b"/proc/self/fd/%d" % self._directories.descriptor(node)

    def _bare_of_store(self, node: Node, place: ZonePath, name: bytes, position: int) -> Bare | None:
        """What the listing of the store has is there; what else is here must be looked at."""
        listing = self._view.listing(place)
        if name not in listing:
            found = self.entry(node, name)
            if found is None:
                return None
            self._nodes.release(found.node)
            return name, found.node.id, stat_module.S_IFMT(found.stat.st_mode) >> 12, position
        kind = _DIRECTORY if listing.has_directory(name) else _REGULAR
        return name, self._nodes.remote_id(place.child_path(name)), kind, position

    def entry(self, node: Node, name: bytes) -> Found | None:
        """Return what a name that ``names`` returned leads to; None when it is gone by now."""
        place = self._directories.place(node)
        stat = self._directories.stat(node, name)
        if not place.zone.is_store:
            if stat is None:
                return None
            seconds = self._directories.seconds(node)
            return Found(self._nodes.local(node, name, stat.st_ino, stat.st_mode), stat, seconds)
        return self._entry_of_store(node, place, name, stat)

    def _entry_of_store(self, node: Node, place: ZonePath, name: bytes, stat: os.stat_result | None) -> Found | None:
        listing = self._view.listing(place)
        known = listing.object(name)
        if stat is not None and self._still_here(place, name, stat):
            stat = self._directories.stat(node, name) or stat
            return Found(self._nodes.local(node, name, stat.st_ino, stat.st_mode), stat, self._directories.seconds(node))
        if self._visibility.hides_object(node, place, name):
            return None
        if known is None and (not listing.has_directory(name) or self._visibility.may_hide_directory(place, name)):
            return None
        return self._lookup.remote(node, place, name, known)

    def _still_here(self, place: ZonePath, name: bytes, stat: os.stat_result) -> bool:
        """Compare what is here with the listing; what the store no longer has, or has anew, is dropped."""
        listing = self._view.listing(place)
        if stat_module.S_ISDIR(stat.st_mode):
            if listing.has_directory(name) or self._marks.is_held(stat.st_ino):
                return True
            return not self._cached_copies.drop_directory(place.child_path(name))
        if not stat_module.S_ISREG(stat.st_mode) or self._policy.of(place, name).stays_here:
            return True
        return self._object_copies.reconcile(place, name, stat, listing.object(name))


def dots(node: Node, offset: int) -> Iterator[Bare]:
    """Yield "." and "..", with which each listing begins, from ``offset`` on."""
    if offset < _DOT:
        yield b".", node.id, _DIRECTORY, _DOT
    if offset < _DOTDOT:
        yield b"..", (node.parent or node).id, _DIRECTORY, _DOTDOT


def _scanned(path: bytes) -> dict[bytes, int]:
    with os.scandir(path) as entries:
        return {
            entry.name: entry.inode() * _KINDS + (_REGULAR if entry.is_file(follow_symlinks=False) else _kind(entry))
            for entry in entries
        }


def _kind(entry: os.DirEntry[bytes]) -> int:
    """Return the DT_* of what is no regular file."""
    if entry.is_dir(follow_symlinks=False):
        return _DIRECTORY
    return _SYMLINK if entry.is_symlink() else _UNKNOWN


def ordered(names: Iterable[bytes]) -> tuple[list[int], list[bytes]]:
    """Return distinct positions in ascending order, and the names that have them.

    The names are sorted in many small lists: a long one would keep all threads from running until it is in order.
    """
    buckets: list[list[tuple[int, bytes]]] = [[] for _ in range(1 << _BUCKET_BITS)]
    for name in names:
        position = position_of(name)
        buckets[position >> POSITION_BITS - _BUCKET_BITS].append((position + _FIRST_POSITION, name))
    positions: list[int] = []
    in_order: list[bytes] = []
    last = 0
    for bucket in buckets:
        bucket.sort()
        for position, name in bucket:
            last = max(position, last + 1)
            positions.append(last)
            in_order.append(name)
    return positions, in_order
