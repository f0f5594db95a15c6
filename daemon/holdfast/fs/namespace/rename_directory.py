"""Rename of directories: done in one step if no file in it is, or would become, an object; otherwise ``mv`` must copy."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from functools import partial

import trio

from holdfast.errors import HoldsObjectsError, NoSuchEntryError, ZoneRootBusyError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.namespace.rmdir import DirectoryRemovals
from holdfast.fs.remote_view.visibility import Left, Whiteouts
from holdfast.store import RENAME_NOREPLACE, rename_with_flags
from holdfast.system.file_id import FileStat
from holdfast.zones import ZonePath

_WALKS = 5
"""The number of walks through a directory while files are being made in it."""


class DirectoryRenames:
    """Carries out renameat2(2) of directories."""

    def __init__(self, base: Foundation, whiteouts: Whiteouts) -> None:
        parts = base.parts
        self._directories, self._nodes, self._view = base.directories, base.nodes, base.view
        self._zones, self._names, self._tree, self._marks = parts.zones, parts.names, parts.store.tree, parts.index.marks
        self._whiteouts = whiteouts
        self._removals = DirectoryRemovals(base)

    async def rename(self, old: Name, new: Name, flags: int) -> None:
        """Move the directory ``old`` to ``new``. Raises ``HoldsObjectsError``."""
        moved, goal = self._zones.child(old.place, old.name), self._zones.child(new.place, new.name)
        assert moved is not None
        assert goal is not None
        left = await self._check(moved, goal)
        if moved.zone.sends:
            await self._check_files(moved.path, goal)
        stat = self._directories.stat(old.directory, old.name)
        if stat is None and self._nodes.of_path(moved.path) is not None:
            raise HoldsObjectsError(f"only the store has the directory {os.fsdecode(moved.path)}; mv makes another")
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old.name)}")
        if self._tree.held.calls:
            self._tree.held.check_moved(moved.path)
            self._tree.held.check_moved(goal.path)
        if any(map(self._tree.is_placed_below, (moved.path, goal.path))):
            raise HoldsObjectsError(
                f"a part of {os.fsdecode(moved.path)} or of its new name is on another disk; mv copies it"
            )
        target_fd = self._directories.writable_descriptor(new.directory)
        victim = self._directories.stat(new.directory, new.name)
        if victim is not None:
            self._removals.begin(victim.st_ino)
        await self._move(old, new, target_fd, flags & RENAME_NOREPLACE, None if moved.zone.sends else victim)
        if victim is not None:
            self._marks.let_go(victim.st_ino)
            self._removals.removed(new.directory, new.name, victim.st_ino)
        node = self._nodes.local(old.directory, old.name, stat.st_ino, stat.st_mode)
        self._nodes.drop_name(node, old.directory, old.name)
        self._nodes.add_name(node, new.directory, new.name)
        self._directories.renamed()
        self._marks.moved()
        if moved.zone.is_store:
            self._view.forget_below(moved)
            if left is not Left.NOTHING:  # hidden since before the directory was made
                self._marks.white_out(moved.path)
            self._view.made_directory(goal)

    async def _move(self, old: Name, new: Name, target_fd: int, flags: int, victim: FileStat | None) -> None:
        """Rename in the tree. Waits only if there is a ``victim``, and that is large."""
        fds = os.dup(self._directories.descriptor(old.directory)), os.dup(target_fd)
        step = partial(rename_with_flags, fds[0], old.name, fds[1], new.name, flags)
        try:
            if victim is None:
                step()
            else:
                await self._removals.removed_by(step, fds[1], new.name, victim)
        finally:
            for fd in fds:
                os.close(fd)

    async def _check(self, moved: ZonePath, goal: ZonePath) -> Left:
        """Return what the store has of the directory ``moved``; raise an error if it can't become ``goal``."""
        if self._zones.is_fixed(moved) or self._zones.is_fixed(goal):
            raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
        if moved.zone != goal.zone and any(zone.is_store or zone.sends for zone in (moved.zone, goal.zone)):
            raise HoldsObjectsError("a directory can't be renamed into or out of a store's zone; mv copies it")
        if moved.zone.is_store or moved.zone.sends:
            key = self._view.listing(moved).key
            if await self._view.remote_of(moved.zone).access.holds_any(key):
                raise HoldsObjectsError(f"{key} holds objects; mv copies them")
        if not moved.zone.is_store:
            return Left.NOTHING
        if await self._whiteouts.left_of(goal, trio.current_time()) is Left.CONTENT:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        return await self._whiteouts.left_of(moved, trio.current_time())

    async def _check_files(self, directory: bytes, goal: ZonePath) -> None:
        """Raise ``HoldsObjectsError`` if not all of ``directory`` may become ``goal``'s. Holds until the next await."""
        for _ in range(_WALKS):
            with self._directories.watched(directory) as watch:
                if await trio.to_thread.run_sync(self._holds_others, directory, goal):
                    raise HoldsObjectsError(f"files in {os.fsdecode(directory)} are to be sent; mv copies, which sends them")
            if not watch.has_grown:
                return
        raise HoldsObjectsError(f"files are being made in {os.fsdecode(directory)}; mv copies those that it finds")

    def _holds_others(self, directory: bytes, goal: ZonePath) -> bool:
        """Say whether ``directory`` holds anything but files that are not sent under their names in ``goal`` either.

        Renaming the directory would not send them. Links and special files are of a time when the zone sent nothing.
        """
        return any(
            not stat_module.S_ISREG(stat.st_mode)
            or not self._names.kind_of(goal.zone.key_of(goal.path + path[len(directory) :])).policy.stays_here
            for path, stat in self._tree.walk(directory)
        )
