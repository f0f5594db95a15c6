"""rename of a directory: at once where nothing in it is, or is to become, an object; else ``mv`` has to copy."""

from __future__ import annotations

import errno
import os
import stat as stat_module

import trio

from holdfast.errors import HoldsObjectsError, NoSuchEntryError, ZoneRootBusyError
from holdfast.fs.inodes.core import LOCAL_KINDS, Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.remote_view.whiteouts import Left, Whiteouts
from holdfast.store import RENAME_NOREPLACE, rename_with_flags
from holdfast.zones import ZonePath


class DirectoryRenames:
    """renameat2(2) of directories."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._whiteouts = Whiteouts(core)

    async def rename(
        self, source: Node, old: bytes, target: Node, new: bytes, flags: int, here: ZonePath, there: ZonePath
    ) -> None:
        """Move the directory ``old`` in ``source`` to ``new`` in ``target``. Raises ``HoldsObjectsError``."""
        core = self._core
        moved, goal = core.zones.child(here, old), core.zones.child(there, new)
        assert moved is not None
        assert goal is not None
        left = await self._check(moved, goal)
        stat = core.local_stat(source, old)
        if stat is None and core.nodes.of_path(moved.path) is not None:
            raise HoldsObjectsError(f"only the store has the directory {os.fsdecode(moved.path)}; mv makes another")
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        target_fd = core.writable_descriptor(target)
        victim = core.local_stat(target, new)
        if victim is not None:
            core.removals.begin(victim.st_ino, is_last=True)
        rename_with_flags(core.directories.descriptor(source), old, target_fd, new, flags & RENAME_NOREPLACE)
        if victim is not None:
            core.index.marks.let_go(victim.st_ino)
            core.lost_directory(target, new, victim.st_ino)
        node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        core.nodes.drop_name(node, source, old)
        core.nodes.add_name(node, target, new)
        core.directories.renamed()
        if moved.zone.is_store:
            core.remote_of(here.zone).directories.forget_below(core.listing(moved).key)
            if left is not Left.NOTHING:  # it was hidden before the directory was made
                core.index.marks.white_out(moved.path)
            core.made_directory(goal)

    async def _check(self, moved: ZonePath, goal: ZonePath) -> Left:
        """Say what the store has of the directory ``moved``, if it can become ``goal``; raise what says that it can't."""
        core = self._core
        if core.zones.is_fixed(moved) or core.zones.is_fixed(goal):
            raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
        if moved.zone != goal.zone and any(zone.is_store or zone.sends for zone in (moved.zone, goal.zone)):
            raise HoldsObjectsError("a directory can't be renamed into or out of a store's zone; mv copies it")
        if moved.zone.is_store or moved.zone.sends:
            key = core.listing(moved).key
            if await core.remote_of(moved.zone).access.holds_any(key):
                raise HoldsObjectsError(f"{key} holds objects; mv copies them")
        if moved.zone.sends and await trio.to_thread.run_sync(self._would_send, moved.path, goal):
            raise HoldsObjectsError(f"files in {os.fsdecode(moved.path)} are to be sent; mv copies them, which sends them")
        if not moved.zone.is_store:
            return Left.NOTHING
        if await self._whiteouts.left_of(goal, trio.current_time()) is Left.CONTENT:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        return await self._whiteouts.left_of(moved, trio.current_time())

    def _would_send(self, directory: bytes, goal: ZonePath) -> bool:
        """Say whether a file in ``directory`` has a final name once the directory is ``goal``: it would never be sent."""
        core = self._core
        return any(
            core.names.kind_of(goal.zone.key_of(goal.path + path[len(directory) :])) not in LOCAL_KINDS
            for path, stat in core.store.tree.walk(directory)
            if stat_module.S_ISREG(stat.st_mode)
        )
