"""Rights of members of the control group to copy within a store: those that they have to the objects' own paths.

The daemon copies in the store, with its own rights, so it has to be asked here what the kernel would have decided about
``cp -r``. Names are no secret to members of the group; bytes are, and nobody makes anything in a directory of others.
"""

from __future__ import annotations

import os
import stat as stat_module

import trio

from holdfast.control.callers import Caller
from holdfast.errors import WithheldError
from holdfast.fs.inodes.object_rights import READ, ObjectRights
from holdfast.store import Tree
from holdfast.zones import ZoneMap, ZonePath


class CopyRights:
    """Checks rights in directories of stores, by zone and key."""

    def __init__(self, rights: ObjectRights, tree: Tree, zones: ZoneMap) -> None:
        self._rights = rights
        self._tree = tree
        self._zones = zones

    async def check(self, zone: str, source: str, target: str, caller: Caller) -> None:
        """Raise ``WithheldError`` unless the caller may read all at ``source`` and create ``target``. Root may."""
        if caller.is_root:
            return
        if not await trio.to_thread.run_sync(self._may_read, zone, source, caller):
            raise WithheldError(f"user {caller.uid} may not read all of {source}, and so may not copy it")
        if not self._may_create(zone, target, caller):
            raise WithheldError(f"user {caller.uid} may not create {target}")

    def _may_read(self, zone: str, source: str, caller: Caller) -> bool:
        """Say whether all that this node has there may be read. What only the store has is all alike (``ObjectRights``)."""
        top = self._place(zone, source)
        if not (self._rights.may_list(top, caller) and self._rights.may_access(top, b"metadata", READ, caller)):
            return False
        for path, stat in self._tree.walk(top.path, directories=True):
            parent, _, name = path.rpartition(b"/")
            if stat_module.S_ISDIR(stat.st_mode):
                may = self._rights.may_list(ZonePath(top.zone, path), caller)
            else:
                may = self._rights.may_access(ZonePath(top.zone, parent), name, READ, caller)
            if not may:
                return False
        return True

    def _may_create(self, zone: str, target: str, caller: Caller) -> bool:
        parent, _, name = target.rpartition("/")
        above, place = self._place(zone, parent), self._place(zone, target)
        is_free = self._rights.may_put(above, os.fsencode(name), caller)
        return is_free and self._rights.may_put(place, b"metadata", caller)

    def _place(self, zone: str, key: str) -> ZonePath:
        place = self._zones.place_of(os.fsencode(f"{zone}/{key}".rstrip("/")))
        assert place is not None
        return place
