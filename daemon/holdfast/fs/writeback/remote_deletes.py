"""Remote deletes: when a name is removed, the deletion of its object is recorded, or the fallback object is hidden.

The local change of the name follows without an await in between, and if it fails, the remote delete is undone: so both
happen or neither does within this process.
"""

from __future__ import annotations

import stat as stat_module
from collections.abc import Callable
from functools import partial

from holdfast.fs.foundation import Foundation
from holdfast.index import CachedName, EntryState
from holdfast.system.file_id import FileStat
from holdfast.transfer import CachedListing, KnownObject
from holdfast.zones import LONGEST_KEY_BYTES, ZoneName, ZonePath

_MOST_LET_GO = 4096
Undo = Callable[[], None]
"""Undoes a remote delete whose name could not be removed. Call it before the next await."""


_OWN = "own"
"""An etag that no object has. It stands for any object with this node's signature (``transfer.conditional_delete``)."""


class RemoteDeletes:
    """Deletes objects by name, and knows which versions of them there are to delete.

    ``stat`` is always that of the name's local file, or None without one.
    """

    def __init__(self, base: Foundation) -> None:
        self._view, self._fetcher, self._entries = base.view, base.fetcher, base.parts.index.entries
        self._marks, self._tree = base.parts.index.marks, base.parts.store.tree
        self._let_go: set[bytes] = set()
        """The paths of directories that were let go since there were ``_holds`` marks: each object asks for all above it."""
        self._holds = 0

    # --- versions ----------------------------------------------------------------------------------------------------

    def known(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version that the store has under this name, as far as it is known here; None if unknown."""
        if not name.sends:
            return None
        return self._known(name, stat, self._view.listing(name.place).object(name.name))

    def to_delete(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version to delete along with the name; None if the store has nothing to delete.

        If a PUT was sent but its reply was lost, the store may have an object: then any object of this node is to be
        deleted.
        """
        if not name.sends:
            return None
        return self._to_delete(name, stat, self._view.listing(name.place).object(name.name))

    def left_by_earlier_daemon(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version to delete for a name that an earlier daemon removed.

        None if its deletion is already recorded. An object that another node has stored meanwhile stays.
        """
        own = self._own(name)
        return own and (self.known(name, stat) or own)

    def _known(self, name: ZoneName, stat: FileStat | None, listed: KnownObject | None) -> CachedName | None:
        if listed is not None:
            return CachedName(name.path, listed.etag, listed.modified_ns)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        return entry.name_at(name.path) if entry is not None else None

    def _to_delete(self, name: ZoneName, stat: FileStat | None, listed: KnownObject | None) -> CachedName | None:
        version = self._known(name, stat, listed)
        if version is not None or stat is None or not stat_module.S_ISREG(stat.st_mode):
            return version
        entry = self._entries.get(stat.st_ino)
        is_sent = entry is not None and entry.state is EntryState.CLEAN
        return None if is_sent else self._own(name)

    def _own(self, name: ZoneName) -> CachedName | None:
        """Return what stands for any object of this node; None if its deletion is already recorded."""
        is_noted = self._view.deletions_of(name.zone).pending(name.path)
        return None if is_noted else CachedName(name.path, _OWN, 0)

    # --- deletions ---------------------------------------------------------------------------------------------------

    def delete(self, name: ZoneName, stat: FileStat | None) -> Undo:
        """Schedule the deletion of the object of a name that is about to be removed here; where the store is the fallback,
        hide it.
        """
        zone = name.zone
        if zone.remote is None or name.policy.stays_here:
            return do_nothing
        self._fetcher.detach(name.path)
        if not (zone.is_store and zone.sends):
            is_hidable = len(name.key) <= LONGEST_KEY_BYTES and not self._is_held(name.place)
            if is_hidable and self._marks.white_out(name.path):
                return partial(self._marks.uncover, name.path)
            return do_nothing
        listing = self._view.listing(name.place)
        listed = listing.object(name.name)
        version = self._to_delete(name, stat, listed)
        return do_nothing if version is None else self._delete(name, version, listing, listed)

    def delete_object(self, name: ZoneName, version: CachedName) -> Undo:
        """Schedule the deletion of this version of a name's object, from ``to_delete`` or ``left_by_earlier_daemon``."""
        listing = self._view.listing(name.place)
        return self._delete(name, version, listing, listing.object(name.name))

    def _delete(self, name: ZoneName, version: CachedName, listing: CachedListing, listed: KnownObject | None) -> Undo:
        recorded = self._view.deletions_of(name.zone).schedule(version)  # first: if that fails, nothing has changed
        listing.remove(name.name)
        listing.note_writing()
        if not len(listing):
            self._hold(name.place)
        return partial(self._keep_object, name, recorded, listed)

    def _keep_object(self, name: ZoneName, version: CachedName, known: KnownObject | None) -> None:
        self._view.deletions_of(name.zone).withdraw(version)
        if known is not None:
            self._view.listing(name.place).put(name.name, known)
            self.let_go(name.place)

    def _hold(self, place: ZonePath) -> None:
        """Keep the directory, which has lost its last object, until somebody removes it."""
        inode = self._tree.inode(place.path)
        if inode:
            self._marks.hold(inode)

    def let_go(self, place: ZonePath) -> None:
        """Let a directory that has an object again, and those above it, exist only as long as their objects from now on."""
        if self._holds != self._marks.holds or len(self._let_go) >= _MOST_LET_GO:
            self._let_go.clear()
            self._holds = self._marks.holds
        path = place.path
        while path not in self._let_go:  # nor any above it
            inode = self._tree.inode(path)
            if inode and self._marks.is_held(inode):
                self._marks.let_go(inode)
            self._let_go.add(path)
            if path != place.zone.prefix:
                path = path.rpartition(b"/")[0]

    def _is_held(self, place: ZonePath) -> bool:
        """Say whether the directory is kept although no object implies it."""
        inode = self._tree.inode(place.path)
        return inode != 0 and self._marks.is_held(inode)


def do_nothing() -> None:
    """Undo what has changed nothing."""
