"""Revalidation of cached copies against the store's listing: kept, given the object's time, or dropped."""

from __future__ import annotations

import stat as stat_module

from holdfast.fs.foundation import Foundation
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.index import INTACT, Entry, EntryState
from holdfast.store import is_copy
from holdfast.system.file_id import FileStat
from holdfast.transfer import KnownObject
from holdfast.zones import ZoneName


class ObjectCopies:
    """Compares local files with the store's listing, for lookups and listings. ``stat`` is always that of the local file."""

    def __init__(self, base: Foundation, times: ObjectTimes) -> None:
        self._entries, self._tree, self._copies = base.parts.index.entries, base.parts.store.tree, base.copies
        self._times = times

    def may_be_old(self, name: ZoneName, stat: FileStat) -> bool:
        """Say whether the store may have a newer version of a local file."""
        if not name.zone.is_store or not name.policy.revalidated or not stat_module.S_ISREG(stat.st_mode):
            return False
        entry = self._entries.get(stat.st_ino)
        return entry is not None and entry.state is EntryState.CLEAN

    def reconcile(self, name: ZoneName, stat: FileStat, known: KnownObject | None) -> bool:
        """Compare a local file with its object in the listing; drop it if it is a copy of another version.

        Returns whether the file still exists. A file with unsent bytes always stays.
        """
        path = name.path
        entry = self._entries.get(stat.st_ino)
        cached = entry.name_at(path) if entry is not None else None
        if entry is None or cached is None or entry.state is not EntryState.CLEAN:
            return True
        if self._is_spoilt(path, stat, entry):
            return False
        if known is None or known.etag != cached.etag:
            return not self._copies.drop(path, stat.st_ino)
        if known.modified_ns and cached.modified_ns != known.modified_ns and not entry.mtime_is_set:
            self._times.seen(stat.st_ino, name, known)
        return True

    def is_spoilt(self, path: bytes, stat: FileStat) -> bool:
        """Say whether a local file was a copy that has lost its size on the disk. If so, it has been put into quarantine."""
        if not stat_module.S_ISREG(stat.st_mode):
            return False
        entry = self._entries.get(stat.st_ino)
        if entry is None or entry.state not in INTACT:
            return False
        return self._is_spoilt(path, stat, entry)

    def _is_spoilt(self, path: bytes, stat: FileStat, entry: Entry) -> bool:
        if stat.st_size == entry.size_bytes or self._copies.is_open(stat.st_ino):
            return False
        if entry.state is EntryState.LOCAL and not is_copy(self._tree.system_path(path)):
            return False  # a process's own, of which there is no other: its open tells
        reason = {"why": "size", "expected": str(entry.size_bytes), "found": str(stat.st_size)}
        self._copies.quarantine(path, stat.st_ino, reason)
        return True
