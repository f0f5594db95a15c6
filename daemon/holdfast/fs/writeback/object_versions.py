"""The version of an object that a deletion of its name must delete."""

from __future__ import annotations

import os
import stat as stat_module

from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.index import CachedName, Entries, EntryState
from holdfast.zones import ZonePath

_OWN = "own"
"""An etag that no object has. It stands for any object with this node's signature (``transfer.conditional_delete``)."""


class ObjectVersions:
    """Versions of names in zones over stores. ``stat`` is always that of the local file, or None without one."""

    def __init__(self, view: StoreView, policy: NamePolicy, entries: Entries) -> None:
        self._view = view
        self._policy = policy
        self._entries = entries

    def known(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version that the store has under this name, as far as it is known here; None if unknown."""
        if not self._policy.sends(place, name):
            return None
        path = place.child_path(name)
        known = self._view.listing(place).object(name)
        if known is not None:
            return CachedName(path, known.etag, known.modified_ns)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        return entry.name_at(path) if entry is not None else None

    def to_delete(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version to delete along with the name; None if the store has nothing to delete.

        If a PUT was sent but its reply was lost, the store may have an object: then any object of this node is to be
        deleted.
        """
        version = self.known(place, name, stat)
        if version is not None or stat is None or not stat_module.S_ISREG(stat.st_mode):
            return version
        entry = self._entries.get(stat.st_ino)
        is_sent = entry is not None and entry.state is EntryState.CLEAN
        return None if is_sent or not self._policy.sends(place, name) else self._own(place, name)

    def left_by_earlier_daemon(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version to delete for a name that an earlier daemon removed.

        None if its deletion is already recorded. An object that another node has stored meanwhile stays.
        """
        own = self._own(place, name)
        return own and (self.known(place, name, stat) or own)

    def _own(self, place: ZonePath, name: bytes) -> CachedName | None:
        """Return what stands for any object of this node; None if its deletion is already recorded."""
        path = place.child_path(name)
        is_noted = self._view.deletions_of(place.zone).pending(path)
        return None if is_noted else CachedName(path, _OWN, 0)
