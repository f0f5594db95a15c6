"""The version of an object that a deletion of its name must delete."""

from __future__ import annotations

import stat as stat_module

from holdfast.fs.foundation import Foundation
from holdfast.index import CachedName, EntryState
from holdfast.system.file_id import FileStat
from holdfast.zones import ZoneName

_OWN = "own"
"""An etag that no object has. It stands for any object with this node's signature (``transfer.conditional_delete``)."""


class ObjectVersions:
    """Versions of names in zones over stores. ``stat`` is always that of the local file, or None without one."""

    def __init__(self, base: Foundation) -> None:
        self._view, self._entries = base.view, base.parts.index.entries

    def known(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version that the store has under this name, as far as it is known here; None if unknown."""
        if not name.sends:
            return None
        known = self._view.listing(name.place).object(name.name)
        if known is not None:
            return CachedName(name.path, known.etag, known.modified_ns)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        return entry.name_at(name.path) if entry is not None else None

    def to_delete(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version to delete along with the name; None if the store has nothing to delete.

        If a PUT was sent but its reply was lost, the store may have an object: then any object of this node is to be
        deleted.
        """
        version = self.known(name, stat)
        if version is not None or stat is None or not stat_module.S_ISREG(stat.st_mode):
            return version
        entry = self._entries.get(stat.st_ino)
        is_sent = entry is not None and entry.state is EntryState.CLEAN
        return None if is_sent or not name.sends else self._own(name)

    def left_by_earlier_daemon(self, name: ZoneName, stat: FileStat | None) -> CachedName | None:
        """Return the version to delete for a name that an earlier daemon removed.

        None if its deletion is already recorded. An object that another node has stored meanwhile stays.
        """
        own = self._own(name)
        return own and (self.known(name, stat) or own)

    def _own(self, name: ZoneName) -> CachedName | None:
        """Return what stands for any object of this node; None if its deletion is already recorded."""
        is_noted = self._view.deletions_of(name.zone).pending(name.path)
        return None if is_noted else CachedName(name.path, _OWN, 0)
