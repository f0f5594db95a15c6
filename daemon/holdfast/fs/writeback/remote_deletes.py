"""Remote deletes: when a name is removed, the deletion of its object is recorded, or the fallback object is hidden.

The local change of the name follows without an await in between, and if it fails, the remote delete is undone: so both
happen or neither does within this process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.fs.foundation import Foundation
from holdfast.fs.writeback.object_versions import ObjectVersions
from holdfast.index import CachedName
from holdfast.system.file_id import FileStat
from holdfast.transfer import KnownObject
from holdfast.zones import LONGEST_KEY_BYTES, ZoneName, ZonePath

_MOST_LET_GO = 4096
Undo = Callable[[], None]
"""Undoes a remote delete whose name could not be removed. Call it before the next await."""


class RemoteDeletes:
    """Deletes objects by name."""

    def __init__(self, base: Foundation, versions: ObjectVersions) -> None:
        self._view, self._fetcher = base.view, base.fetcher
        self._marks, self._tree = base.parts.index.marks, base.parts.store.tree
        self._versions = versions
        self._let_go: set[bytes] = set()
        """The paths of directories that were let go since there were ``_holds`` marks: each object asks for all above it."""
        self._holds = 0

    def delete(self, name: ZoneName, stat: FileStat | None) -> Undo:
        """Schedule the deletion of the object of a name that is about to be removed here; where the store is the fallback,
        hide it.

        ``stat`` is that of the local file, if there is one.
        """
        zone = name.zone
        if zone.remote is None:
            return do_nothing
        self._fetcher.detach(name.path)
        if name.policy.stays_here:
            return do_nothing
        if not (zone.is_store and zone.sends):
            is_hidable = len(name.key) <= LONGEST_KEY_BYTES and not self._is_held(name.place)
            if is_hidable and self._marks.white_out(name.path):
                return partial(self._marks.uncover, name.path)
        elif (version := self._versions.to_delete(name, stat)) is not None:
            return self.delete_object(name, version)
        return do_nothing

    def delete_object(self, name: ZoneName, version: CachedName) -> Undo:
        """Schedule the deletion of this version of a name's object (``ObjectVersions``)."""
        recorded = self._view.deletions_of(name.zone).schedule(version)  # first: if that fails, nothing has changed
        listing = self._view.listing(name.place)
        known = listing.object(name.name)
        listing.remove(name.name)
        listing.note_writing()
        if not len(listing):
            self._hold(name.place)
        return partial(self._keep_object, name, recorded, known)

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
