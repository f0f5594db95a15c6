"""rmdir: the directory is removed in its store first, then here; what the store keeps of it is hidden."""

from __future__ import annotations

import errno
import os
from functools import partial

import trio

from holdfast.errors import NoSuchEntryError, ZoneNotPermittedError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.directory_removals import DirectoryRemovals
from holdfast.fs.remote_view.views import Views
from holdfast.fs.remote_view.whiteouts import Left
from holdfast.system.file_id import FileStat
from holdfast.zones import ZoneKind, ZonePath


class Rmdir:
    """Removes directories."""

    def __init__(self, base: Foundation, views: Views) -> None:
        parts = base.parts
        self._directories, self._nodes, self._ttl, self._view = base.directories, base.nodes, base.ttl, base.view
        self._zones, self._tree, self._marks = parts.zones, parts.store.tree, parts.index.marks
        self._whiteouts, self._hints = views.whiteouts, views.hints
        self._removals = DirectoryRemovals(base)

    async def rmdir(self, parent: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """rmdir(2). A directory of a store's zone is empty if a LIST within the metadata TTL shows no objects.

        The store comes first: if it refuses or does not answer, the directory is still here and the call can be repeated.
        """
        place = self._directories.place(parent)
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneNotPermittedError("the zones of the mount can't be removed")
        child = self._zones.child(place, name)
        assert child is not None
        left = await self._clear_in_store(parent, name, child) if place.zone.is_store else Left.NOTHING
        stat = self._directories.stat(parent, name)
        if stat is not None:
            if self._tree.held:
                self._tree.held.check_moved(child.path)
            self._removals.begin(stat.st_ino)
            await self._remove(parent, name, stat)
            self._removals.removed(parent, name, stat.st_ino)
        elif (not place.zone.is_store or self._nodes.drop_path(child.path) is None) and not attempt.resent:
            raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
        elif place.zone.is_store:
            self._directories.touch(parent)
        if place.zone.remote is not None:
            self._forget_directory(place, child, name, stat, left)

    async def _remove(self, parent: Node, name: bytes, stat: FileStat) -> None:
        fd = os.dup(self._directories.descriptor(parent))
        try:
            await self._removals.removed_by(partial(self._tree.remove_directory, fd, name), fd, name, stat)
        finally:
            os.close(fd)

    async def _clear_in_store(self, parent: Node, name: bytes, child: ZonePath) -> Left:
        """Remove an empty directory from its store; return what is left there. Raises ``OSError`` and ``RemoteError``."""
        left = await self._whiteouts.left_of(child, self._ttl.oldest_listing(child))
        if left is Left.NOTHING:
            return left
        if left is Left.CONTENT or self._has_entries(parent, name):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        await self._view.flush_deletions(child)
        await self._view.remote_of(child.zone).access.prune(self._view.listing(child).key)
        return await self._whiteouts.left_of(child, trio.current_time())

    def _has_entries(self, parent: Node, name: bytes) -> bool:
        """Say whether a directory of the tree has any entries."""
        if self._directories.stat(parent, name) is None:
            return False
        fd = self._tree.open_child(self._directories.descriptor(parent), name)
        try:
            with os.scandir(b"/proc/self/fd/%d" % fd) as entries:
                return next(entries, None) is not None
        finally:
            os.close(fd)

    def _forget_directory(self, place: ZonePath, child: ZonePath, name: bytes, stat: FileStat | None, left: Left) -> None:
        """Update the view after a directory was removed here. ``left`` is what its store has: content stays visible."""
        self._hints.directory_gone(child.path)
        if stat is not None:
            self._marks.let_go(stat.st_ino)
        if not place.zone.is_store:
            self._marks.white_out(child.path)
            return
        self._view.listing(place).remove(name)
        if left is Left.EMPTY:
            self._marks.white_out(child.path)
        else:
            self._marks.uncover(child.path)
            self._view.forget_below(child)
