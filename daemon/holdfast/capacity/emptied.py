"""Directories that evictions have left empty. They take inodes, and the store implies them as long as it has the objects."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import trio

from holdfast.store import Tree
from holdfast.transfer import CachedCopies, Ownership
from holdfast.zones import ZoneMap

_log = logging.getLogger("holdfast.capacity")


class EmptiedDirectories:
    """Drops such directories where inodes are wanted. What users have made or changed stays.

    ``owners`` maps each store to the ownership of directories that were created for its objects.
    """

    def __init__(self, copies: CachedCopies, zones: ZoneMap, tree: Tree, owners: Mapping[str, Ownership]) -> None:
        self._copies = copies
        self._zones = zones
        self._tree = tree
        self._owners = owners

    def drop_above(self, path: bytes) -> int:
        """Drop the directories above ``path``, from which a copy was evicted, if they are empty; return how many."""
        dropped = 0
        while self._drop(path := path.rpartition(b"/")[0]):
            dropped += 1
        return dropped

    async def drop_all(self, most: int) -> int:
        """Drop directories that earlier evictions have left empty; return how many, ``most`` or somewhat more."""
        dropped = 0
        for path in await trio.to_thread.run_sync(self._empty_ones):
            if dropped >= most:
                break
            if self._drop(path):
                dropped += 1 + self.drop_above(path)
            await trio.lowlevel.checkpoint()
        return dropped

    def _drop(self, path: bytes) -> bool:
        place = self._zones.place_of(path) if path else None
        if place is None or place.zone.remote is None or path == place.zone.prefix:
            return False
        try:
            return self._copies.drop_emptied_directory(path, self._owners[place.zone.remote])
        except OSError as problem:
            _log.debug("the empty directory %s can't be removed: %s", os.fsdecode(path), problem)
            return False

    def _empty_ones(self) -> list[bytes]:
        """Return the empty directories in the zones of stores."""
        found = []
        for name in self._zones.top_names:
            place = self._zones.place_of(name)
            if place is None or not place.zone.is_store:
                continue
            try:
                fd = self._tree.open_directory(name)
            except OSError as problem:
                _log.warning("%s is not searched for empty directories: %s", os.fsdecode(name), problem)
                continue
            try:
                found += [b"/".join([name, *trail]) for trail in self._empty_below(fd)]
            finally:
                os.close(fd)
        return found

    def _empty_below(self, fd: int) -> list[list[bytes]]:
        """Return the names that lead to empty directories; whether one on bad blocks is empty, nobody knows."""
        bad: set[bytes] = set()
        walk = self._tree.descend(fd, unreadable=lambda path, _: bad.add(path))
        return [list(trail) for trail, _, entries in walk if not entries and b"/".join(trail) not in bad]
