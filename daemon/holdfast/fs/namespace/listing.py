"""Directory listings, with offsets that stay valid while entries come and go.

If only this daemon changes a directory, its backing directory can be read directly (``is_plain``, ``fuse.readdir_replies``).
This module serves all others: directories with a store behind them, and file systems whose own offsets are not stable.
Entries are ordered by a number derived from the name alone, which is also their offset. So a listing can continue after any
change, in any handle and in another run of the daemon, and an entry that is there all the time is listed exactly once.
A snapshot of the sorted names is kept while the directory is open. It is renewed whenever a reader starts at the beginning.
"""

from __future__ import annotations

import bisect
import os
import stat as stat_module
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

from holdfast.digest import POSITION_BITS, position_of
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.lookup import Found, Lookup
from holdfast.fs.remote_view.views import Views
from holdfast.system.file_id import FileId, FileStat, listed_ids
from holdfast.transfer import CachedListing
from holdfast.transfer.computing import AT_ONCE, Work, at_once, computed, pieces, read
from holdfast.transfer.shared_work import SharedWork
from holdfast.zones import ZonePath

_DOT, _DOTDOT, _FIRST_POSITION = 1, 2, 3
"""The offsets after "." and "..", and the smallest offset after any other entry."""
_LARGE_DIRECTORY_BYTES = 128 * 1024
_BUCKET_BITS = 10
_KINDS = 16
_UNKNOWN, _DIRECTORY, _REGULAR, _SYMLINK = 0, 4, 8, 10  # readdir(3)


Bare = tuple[bytes, int, int, int]
"""An entry without attributes: name, inode number, type (a DT_* of readdir(3)), and the offset after it."""


class _Snapshot:
    __slots__ = ("files", "handles", "names", "positions")

    def __init__(self) -> None:
        self.handles = 0
        self.positions: list[int] = []
        self.names: list[bytes] = []
        self.files: Mapping[bytes, int] = {}
        """The result of ``Listings.names``."""

    def take(self, files: Mapping[bytes, int], ordered: tuple[list[int], list[bytes]]) -> None:
        self.files = files
        self.positions, self.names = ordered


class Listings:
    """Open directories."""

    def __init__(self, base: Foundation, views: Views, prefetcher: Prefetcher, lookup: Lookup) -> None:
        self._directories, self._nodes, self._policy, self._ttl = base.directories, base.nodes, base.policy, base.ttl
        self._view, self._cached_copies, self._marks = base.view, base.copies, base.parts.index.marks
        self._visibility, self._object_copies = views.visibility, views.object_copies
        self._prefetcher = prefetcher
        self._lookup = lookup
        self._snapshots: dict[int, _Snapshot] = {}
        self._snapshots_made = SharedWork[int]()

    def open(self, node: Node) -> None:
        """opendir(3): count a handle of the snapshot."""
        self._snapshots.setdefault(node.id, _Snapshot()).handles += 1

    def release(self, node_id: int) -> None:
        """closedir(3)."""
        snapshot = self._snapshots.get(node_id)
        if snapshot is not None:
            snapshot.handles -= 1
            if snapshot.handles <= 0:
                del self._snapshots[node_id]

    async def prepare(self, node: Node, offset: int) -> None:
        """Prepare the snapshot for reading at ``offset``. Raises ``RemoteError`` if the store does not answer."""
        snapshot = self._snapshots.get(node.id)
        if offset != 0 and snapshot is not None and snapshot.names and not self._is_forgotten(node):
            return
        await self._snapshots_made.made(node.id, lambda: self._prepare(node))
        while node.id not in self._snapshots:  # a handle that is not counted was released before this task had its turn
            await self._snapshots_made.made(node.id, lambda: self._prepare(node))

    async def _prepare(self, node: Node) -> None:
        files = await self.names(node)
        in_order = await computed(_ordered(files), len(files))
        # Only now: a handle from an earlier daemon, which is not counted, may have been released meanwhile.
        self._snapshots.setdefault(node.id, _Snapshot()).take(files, in_order)

    def entries(self, node: Node, offset: int) -> Iterator[tuple[bytes, Found, int]]:
        """Yield name, node and next offset of the entries from ``offset`` on. Call ``prepare`` first."""
        snapshot = self._snapshots[node.id]
        for index in range(bisect.bisect_right(snapshot.positions, offset), len(snapshot.names)):
            name = snapshot.names[index]
            found = self.entry(node, name)
            if found is not None:
                yield name, found, snapshot.positions[index]

    def bare(self, node: Node, offset: int) -> Iterator[Bare]:
        """Yield the entries from ``offset`` on without attributes. Call ``prepare`` first."""
        place = self._directories.place(node)
        listing = self._view.listing(place) if place.zone.is_store else None
        of_backing = self._nodes.of_backing
        snapshot = self._snapshots[node.id]
        positions, names, files = snapshot.positions, snapshot.names, snapshot.files
        for index in range(bisect.bisect_right(positions, offset), len(names)):
            name, position = names[index], positions[index]
            file = files[name]
            inode = FileId(file // _KINDS)
            if inode and (listing is None or name in listing):
                known = of_backing(inode)
                yield name, known.id if known is not None else inode, file % _KINDS, position
            elif (bare := self._bare_of_store(node, place, name, position)) is not None:
                yield bare

    def is_plain(self, node: Node) -> bool:
        """Say whether the listing is exactly the content of the backing directory."""
        directories = self._directories
        if node is self._nodes.root or not directories.is_ours(node):
            return False
        return not directories.is_spread or directories.lists_ids(node)

    async def names(self, node: Node) -> Mapping[bytes, int]:
        """Return all names in a directory, local and in its store, each with inode number and type (DT_*) in one number.

        The number is 0 for entries that exist only in the store.
        """
        place = self._directories.place(node)
        listed: Collection[bytes] = ()
        hidden: Collection[bytes] = ()
        if place.zone.is_store:
            self._prefetcher.listed(place)
            await self._view.listing(place).ask(self._ttl.oldest_listing(place))
        # Before the store's names: what is sent and evicted while the disk is read is in one of both.
        here = await self._scanned(node) if node.backing else {}
        if place.zone.is_store:
            hidden = await self._visibility.hidden_names(place)
            while not (listing := self._view.listing(place)).is_known:  # it was forgotten meanwhile
                await listing.ask(self._ttl.oldest_listing(place))
                hidden = await self._visibility.hidden_names(place)
            listed = listing.all_names()
        files = here
        if listed:
            files = await computed(_merged(listed, hidden, here), len(listed) + len(hidden) + len(here))
        return self._visibility.shown(place, files)

    async def _scanned(self, node: Node) -> dict[bytes, int]:
        """Return the content of the backing directory. If that may be large it is read in threads, a part at a time."""
        path = self._path(node)
        if not self._is_large(node):
            return _scanned(path)
        files: dict[bytes, int] = {}
        with os.scandir(path) as entries:
            listed_id = listed_ids(path)
            while some := await read(lambda: _some(entries, listed_id)):
                files.update(some)
        return files

    def _is_forgotten(self, node: Node) -> bool:
        """Say whether the cached listing is gone, so that an entry missing in it must be neither left out nor dropped."""
        place = self._directories.place(node)
        return place.zone.is_store and not self._view.listing(place).is_known

    def _is_large(self, node: Node) -> bool:
        return os.stat(self._directories.descriptor(node)).st_size > _LARGE_DIRECTORY_BYTES

    def _path(self, node: Node) -> bytes:
        return b"/proc/self/fd/%d" % self._directories.descriptor(node)

    def _bare_of_store(self, node: Node, place: ZonePath, name: bytes, position: int) -> Bare | None:
        """Return an entry from the store's listing, or from a stat if the listing does not have it."""
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
        """Return the entry for a name from ``names``; None if it is gone."""
        zone = self._directories.place(node).zone
        stat = self._directories.stat(node, name)
        if zone.is_store:
            return self._entry_of_store(self._policy.name(node, name), stat)
        if stat is None:
            return None
        may_be_spoilt = zone.remote is not None and self._nodes.of_backing(stat.st_ino) is None
        if may_be_spoilt and self._object_copies.is_spoilt(self._policy.name(node, name).path, stat):
            return None
        return self._lookup.listed(node, name, stat)

    def _entry_of_store(self, name: Name, stat: FileStat | None) -> Found | None:
        listing = self._view.listing(name.place)
        known = listing.object(name.name)
        if stat is not None and self._still_here(name, stat, listing):
            stat = self._directories.stat(name.directory, name.name) or stat
            return self._lookup.listed(name.directory, name.name, stat)
        if self._visibility.hides_object(name):
            return None
        if known is None and (not listing.has_directory(name.name) or self._visibility.may_hide_directory(name)):
            return None
        return self._lookup.remote(name, known)

    def _still_here(self, name: Name, stat: FileStat, listing: CachedListing) -> bool:
        """Compare a local entry with the store's listing. Drops it if the store has no such entry or another version."""
        if stat_module.S_ISDIR(stat.st_mode):
            if listing.has_directory(name.name) or self._marks.is_held(stat.st_ino):
                return True
            return not self._cached_copies.drop_directory(name.path)
        if not stat_module.S_ISREG(stat.st_mode) or name.policy.stays_here:
            return True
        return self._object_copies.reconcile(name, stat, listing.object(name.name))


def dots(node: Node, offset: int) -> Iterator[Bare]:
    """Yield "." and "..", with which each listing begins, from ``offset`` on."""
    if offset < _DOT:
        yield b".", node.id, _DIRECTORY, _DOT
    if offset < _DOTDOT:
        yield b"..", (node.parent or node).id, _DIRECTORY, _DOTDOT


def _scanned(path: bytes) -> dict[bytes, int]:
    with os.scandir(path) as entries:
        listed_id = listed_ids(path)
        return {entry.name: _file(entry, listed_id) for entry in entries}


def _some(entries: Iterator[os.DirEntry[bytes]], listed_id: Callable[[os.DirEntry[bytes]], FileId]) -> dict[bytes, int]:
    return {entry.name: _file(entry, listed_id) for entry in islice(entries, AT_ONCE)}


def _file(entry: os.DirEntry[bytes], listed_id: Callable[[os.DirEntry[bytes]], FileId]) -> int:
    return listed_id(entry) * _KINDS + (_REGULAR if entry.is_file(follow_symlinks=False) else _kind(entry))


def _merged(listed: Iterable[bytes], hidden: Iterable[bytes], here: dict[bytes, int]) -> Work[dict[bytes, int]]:
    """Return the names that a store has, without the hidden ones, and those that are here."""
    files: dict[bytes, int] = {}
    for piece in pieces(listed):
        files.update(dict.fromkeys(piece, 0))
        yield
    for piece in pieces(hidden):
        for name in piece:
            files.pop(name, None)
        yield
    for some in pieces(here.items()):
        files.update(some)
        yield
    return files


def _kind(entry: os.DirEntry[bytes]) -> int:
    """Return the DT_* of an entry that is no regular file."""
    if entry.is_dir(follow_symlinks=False):
        return _DIRECTORY
    return _SYMLINK if entry.is_symlink() else _UNKNOWN


def ordered(names: Iterable[bytes]) -> tuple[list[int], list[bytes]]:
    """Return distinct offsets in ascending order, and their names."""
    return at_once(_ordered(names))


def _ordered(names: Iterable[bytes]) -> Work[tuple[list[int], list[bytes]]]:
    """Do as ``ordered``. The names are sorted in many small lists, because one long list would be sorted in one step."""
    buckets: list[list[tuple[int, bytes]]] = [[] for _ in range(1 << _BUCKET_BITS)]
    for piece in pieces(names):
        for name in piece:
            position = position_of(name)
            buckets[position >> POSITION_BITS - _BUCKET_BITS].append((position + _FIRST_POSITION, name))
        yield
    positions: list[int] = []
    in_order: list[bytes] = []
    last = 0
    for bucket in buckets:
        bucket.sort()
        for position, name in bucket:
            last = max(position, last + 1)
            positions.append(last)
            in_order.append(name)
        bucket.clear()
        yield
    return positions, in_order
