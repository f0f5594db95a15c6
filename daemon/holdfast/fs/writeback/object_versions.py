"""Which version of an object a name stands for: what a deletion of the name is to delete."""

from __future__ import annotations

import os
import stat as stat_module

from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.remote_view.store_view import StoreView
from holdfast.index import CachedName, Entries, EntryState
from holdfast.zones import ZonePath

_OWN = "own"
"""An etag that no object has. What is deleted then is an object with this node's signature, whichever version it is
(``transfer.conditional_delete``)."""


class ObjectVersions:
    """Answers for names in zones over stores. ``stat`` is always the attributes of the file here; None: there is none."""

    def __init__(self, view: StoreView, policy: NamePolicy, entries: Entries) -> None:
        self._view = view
        self._policy = policy
        self._entries = entries

    def known(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version that the store has under this name, as far as is known here; None when none is."""
        if not self._policy.sends(place, name):
            return None
        path = place.child_path(name)
        known = self._view.listing(place).object(name)
        if known is not None:
            return CachedName(path, known.etag, known.modified_ns)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        return entry.name_at(path) if entry is not None else None

    def to_delete(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version that must go with the name; None when the store has nothing to delete.

        A PUT may have stored one though nobody has had its answer: then whichever is this node's own must go.
        """
        version = self.known(place, name, stat)
        if version is not None or stat is None or not stat_module.S_ISREG(stat.st_mode):
            return version
        entry = self._entries.get(stat.st_ino)
        is_sent = entry is not None and entry.state is EntryState.CLEAN
        return None if is_sent or not self._policy.sends(place, name) else self._own(place, name)

    def left_by_earlier_daemon(self, place: ZonePath, name: bytes, stat: os.stat_result | None) -> CachedName | None:
        """Return the version that must go with a name which an earlier daemon took away here.

        None when its deletion is noted already. What another node has put there stays.
        """
        own = self._own(place, name)
        return own and (self.known(place, name, stat) or own)

    def _own(self, place: ZonePath, name: bytes) -> CachedName | None:
        """Return what stands for the object that this node has stored; None when its deletion is noted already."""
        path = place.child_path(name)
        is_noted = self._view.deletions_of(place.zone).pending(path)
        return None if is_noted else CachedName(path, _OWN, 0)
