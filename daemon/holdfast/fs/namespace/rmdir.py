"""rmdir: the directory is removed in its store first, then here; what the store keeps of it is hidden.

A directory stays as large as it ever was. The file system goes through all of its blocks to see that it is empty, and frees
them with the last descriptor: for one that had 60,000 names of 255 bytes this takes seconds. So both happen in threads, and
the caller waits only for the first. The directory above is locked meanwhile, in the backing tree and by the kernel for the
mount: whoever works in it waits.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from holdfast.errors import NoSuchEntryError, ZoneNotPermittedError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.remote_view.views import Views
from holdfast.fs.remote_view.visibility import Left
from holdfast.store import DIRECTORY
from holdfast.system.file_id import FileId, FileStat
from holdfast.zones import ZoneKind, ZonePath

_LARGE_BYTES = 1 << 18
"""The size below which a removal takes less than a millisecond."""


class DirectoryRemovals:
    """Carries out steps that remove directories, by rmdir or by a rename over one, and what goes with them."""

    def __init__(self, base: Foundation) -> None:
        self._directories, self._nodes, self._unlinks = base.directories, base.nodes, base.unlinks
        self._freeing = base.parts.store.freeing

    def begin(self, inode: FileId) -> None:
        """Note that a request is about to remove the directory ``inode`` from the tree; call ``removed`` when it is gone."""
        self._unlinks.begin(inode, is_last=True)
        self._nodes.recall(inode)

    def removed(self, parent: Node, name: bytes, inode: FileId) -> None:
        """Update the nodes after the directory ``inode``, which had this name, was removed from the tree."""
        node = self._nodes.of_backing(inode)
        if node is None:
            self._unlinks.gone.add(inode)
            return
        self._directories.forget(node)
        self._nodes.drop_name(node, parent, name)
        self._nodes.unbind(node)
        if node.lookups:
            self._nodes.keep_nameless(node)

    async def removed_by(self, step: Callable[[], None], directory_fd: int, name: bytes, stat: os.stat_result) -> None:
        """Carry out ``step``, which removes the directory ``name``, in a thread if that is large. Raises as ``step`` does.

        ``directory_fd`` and what ``step`` uses must stay open.
        """
        if stat.st_size <= _LARGE_BYTES:
            step()
            return
        fd = os.open(name, DIRECTORY, dir_fd=directory_fd)
        try:
            await trio.to_thread.run_sync(_after_reading, step, fd)
        finally:
            self._freeing.close_later(fd, stat.st_blocks * 512, stat.st_dev)


def _after_reading(step: Callable[[], None], fd: int) -> None:
    """Carry out ``step`` when the directory is in memory: the lock of the one above is held for a shorter time."""
    with suppress(OSError), os.scandir(f"/proc/self/fd/{fd}") as entries:
        next(entries, None)
    step()


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
            if self._tree.held.calls:
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
