"""The part of each state store that this node holds: counted once from the index, then kept up by what changes there.

Only clean copies count: complete, and the same in the remote store. What state versions share counts for the store
that it belongs to by its name. The first count goes through the whole index, some thousand entries at a time, with
pauses. After that the index notes by how much each name's bytes change (``index.Changes``). Only where the newest
version goes is a store counted anew, from its directory in the tree. So the cost follows what changes, not how many
files there are.

Must not know: which engine wrote the files (``checkpoints.formats``), and who is told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import trio

from holdfast.checkpoints.formats import Formats
from holdfast.checkpoints.formats.interface import StateFile, StateStore
from holdfast.index import Entries, Entry, EntryState
from holdfast.store import Tree
from holdfast.system.file_id import FileId

MOST_STORES = 100_000
"""The limit of state stores in all zones together. Nobody has so many on one node; more are somebody's joke."""
_ENTRIES_AT_ONCE = 2000  # 10 ms of a thread
_PAUSES_PER_WORK = 4  # a million files, 8 s of a processor, take 40 s
_MOST_CHANGES = 200_000
_MOST_FILES = 100_000  # of one store: Spark keeps some hundred
_log = logging.getLogger("holdfast.holdings")


class HeldStore(NamedTuple):
    """The part of a store that is here: the newest version with a file here (0: none), and the bytes of all its files.

    ``own_version`` is the newest with a file that was written here, or fetched and then opened again: a task works, or has
    worked, with this state on this node. What was only fetched is a copy.
    """

    version: int
    size_bytes: int
    own_version: int = 0


class Place(NamedTuple):
    """A state store, and the zone that it lies in."""

    zone: str
    store: StateStore


class HeldStores:
    """Counts what is held. ``zones`` are the names of the stores whose zones are looked at."""

    def __init__(self, entries: Entries, tree: Tree, formats: Formats, zones: Iterable[str]) -> None:
        self._entries = entries
        self._tree = tree
        self._formats = formats
        self._zones = {zone.encode(): zone for zone in zones}
        self._changes = entries.follow(_MOST_CHANGES)
        self._held: dict[Place, HeldStore] = {}
        self._is_counted = False
        self._lock = trio.Lock()

    async def now(self) -> Mapping[Place, HeldStore]:
        """Return what is held now. The first call takes as long as the whole index is; an await may cancel it unharmed."""
        if self._is_counted and not self._changes:
            return self._held
        async with self._lock:
            if not self._is_counted:
                await self._count_all()
            changed = self._changes.take()
            if changed is None:
                self._is_counted = False
                await self._count_all()
            elif changed:
                self._is_counted = False  # until the changes that were taken are counted, whatever goes wrong
                self._held = await trio.to_thread.run_sync(self._with, changed)
                self._is_counted = True
            return self._held

    async def _count_all(self) -> None:
        """Count from the index, with pauses. What changes meanwhile is counted from the tree at the end."""
        self._changes.take()
        found: dict[Place, HeldStore] = {}
        scan = self._entries.scan({EntryState.CLEAN})
        began = trio.current_time()
        while await trio.to_thread.run_sync(self._count_some, scan, found):
            await trio.sleep(_PAUSES_PER_WORK * (trio.current_time() - began))
            began = trio.current_time()
        changed = self._changes.take()
        if changed is None:
            _log.info("more files changed than can be followed: their holdings are counted again later")
            return
        self._held = await trio.to_thread.run_sync(self._recounted, found, changed)
        self._is_counted = True

    def _count_some(self, scan: Iterator[tuple[FileId, Entry]], found: dict[Place, HeldStore]) -> bool:
        """Count the next entries; return whether there are more."""
        some = list(islice(scan, _ENTRIES_AT_ONCE))
        for inode, entry in some:
            for name in () if self._tree.has_lost(inode) else entry.names:
                place, file = self._file(name.path)
                if place is not None and file is not None and entry.size_bytes:  # empty ones leave no trace in the changes
                    _add(found, place, file.version, entry.size_bytes, is_own=not entry.on_probation)
        return bool(some)

    def _with(self, changed: Mapping[bytes, int]) -> dict[Place, HeldStore]:
        """Return what is held after these changes of bytes by name."""
        held = dict(self._held)
        doubtful: dict[Place, bytes] = {}
        for path, delta_bytes in changed.items():
            place, file = self._file(path)
            if place is None or file is None:
                continue
            before, is_own = held.get(place), self._is_own(path, file)
            if _is_doubtful(before, file, delta_bytes, is_own=is_own):
                doubtful[place] = file.directory
            elif delta_bytes < 0:
                _add(held, place, None, delta_bytes)
            else:
                _add(held, place, file.version, delta_bytes, is_own=is_own)
        self._recount(held, doubtful)
        return held

    def _recounted(self, held: dict[Place, HeldStore], changed: Iterable[bytes]) -> dict[Place, HeldStore]:
        """Return ``held`` with the stores that have one of the names counted again."""
        files = (self._file(path) for path in changed)
        self._recount(held, {place: file.directory for place, file in files if place is not None and file is not None})
        return held

    def _recount(self, held: dict[Place, HeldStore], directories: Mapping[Place, bytes]) -> None:
        for place, directory in directories.items():
            held.pop(place, None)
            for path, stat in islice(self._tree.walk(place.zone.encode() + b"/" + directory), _MOST_FILES):
                found, file = self._file(path)
                entry = self._entries.get(stat.st_ino) if found == place else None
                if file is not None and entry is not None and _counts(entry, path):
                    _add(held, place, file.version, entry.size_bytes, is_own=not entry.on_probation)

    def _is_own(self, path: bytes, file: StateFile) -> bool:
        """Say whether a file of a version was written here, or opened again after it was fetched."""
        entry = self._entries.get(self._tree.inode(path)) if file.version is not None else None
        return entry is not None and not entry.on_probation

    def _file(self, path: bytes) -> tuple[Place | None, StateFile | None]:
        top, _, name = path.partition(b"/")
        zone = self._zones.get(top)
        file = self._formats.state_file(name) if zone is not None else None
        return (Place(zone, file.store), file) if zone is not None and file is not None else (None, None)


def _is_doubtful(before: HeldStore | None, file: StateFile, delta_bytes: int, *, is_own: bool) -> bool:
    """Say whether only a new count tells what is held of a store after a change: a newest version may have gone.

    A file that went and came back between two looks may have been written before, and be fetched now.
    """
    if before is None:
        return delta_bytes <= 0
    if delta_bytes > 0:
        return file.version is not None and file.version == before.own_version and not is_own
    is_newest = file.version in (before.version, before.own_version)
    return is_newest or delta_bytes == 0 or before.size_bytes + delta_bytes <= 0


def _counts(entry: Entry, path: bytes) -> bool:
    return entry.state is EntryState.CLEAN and entry.size_bytes > 0 and entry.name_at(path) is not None


def _add(held: dict[Place, HeldStore], place: Place, version: int | None, size_bytes: int, *, is_own: bool = False) -> None:
    before = held.get(place)
    if before is None and len(held) >= MOST_STORES:
        return
    before = before or HeldStore(0, 0)
    newest = version or 0
    own_version = max(before.own_version, newest if is_own else 0)
    held[place] = HeldStore(max(before.version, newest), before.size_bytes + size_bytes, own_version)
