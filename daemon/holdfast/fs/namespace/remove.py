"""Names that go: unlink and rmdir, and what becomes of a file that loses a name."""

from __future__ import annotations

import errno
import os
import stat as stat_module

import trio

from holdfast.errors import NoSuchEntryError, ZoneNotPermittedError
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.whiteouts import Left, Whiteouts
from holdfast.fs.writeback.publisher import Publisher
from holdfast.zones import NameKind, ZoneKind, ZonePath


class Removal:
    """Takes names out of the tree and out of what is believed."""

    def __init__(self, core: Core, publisher: Publisher, intents: CreateHints, whiteouts: Whiteouts) -> None:
        self._core = core
        self._whiteouts = whiteouts
        self._publisher = publisher
        self._intents = intents

    def unlink(self, directory: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """unlink(2). In a store's zone the object is deleted soon after (``transfer.deletions``)."""
        core = self._core
        place = core.directories.place(directory)
        stat = core.local_stat(directory, name)
        if stat is None and (place.zone.remote is None or core.nodes.of_path(place.child_path(name)) is None):
            if attempt.resent:
                return
            raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
        if stat is not None and stat_module.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._publisher.retract(place, name, stat)
        if stat is not None:
            self.take_name(directory, name, stat)
        else:
            core.nodes.drop_path(place.child_path(name))
        if place.zone.remote is not None and core.kind_of(place, name) is NameKind.TEMPORARY:
            self._intents.temporary_gone(place.path, name)

    async def rmdir(self, parent: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """rmdir(2). A directory of a store's zone is empty when no object is left, by a LIST within the metadata TTL.

        The store comes first: when it refuses, or does not answer, the directory is still here, to be removed once more.
        """
        core = self._core
        place = core.directories.place(parent)
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneNotPermittedError("the zones of the mount can't be removed")
        child = core.zones.child(place, name)
        assert child is not None
        left = await self._clear_in_store(parent, name, child) if place.zone.is_store else Left.NOTHING
        stat = core.local_stat(parent, name)
        if stat is not None:
            core.removals.begin(stat.st_ino, is_last=True)
            os.rmdir(name, dir_fd=core.directories.descriptor(parent))
            core.lost_directory(parent, name, stat.st_ino)
        elif (not place.zone.is_store or core.nodes.drop_path(child.path) is None) and not attempt.resent:
            raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
        if place.zone.remote is not None:
            self._forget_directory(place, child, name, stat, left)

    def take_name(self, directory: Node, name: bytes, stat: os.stat_result) -> None:
        """Remove a name that isn't a directory's from the tree. An open file without another name lives on as an orphan."""
        core = self._core
        fd = core.directories.descriptor(directory)
        node = core.nodes.of_backing(stat.st_ino)
        core.residence.forget_name(core.directories.place(directory).child_path(name), stat)
        last = stat.st_nlink == 1
        core.removals.begin(stat.st_ino, is_last=last)
        if last and node is not None and node.opened is not None:
            core.store.orphanage.take(fd, name, stat.st_ino)
        else:
            with core.store.freeing.later(name, fd, stat):
                os.unlink(name, dir_fd=fd)
        self.lost_name(directory, name, stat)

    def lost_name(self, directory: Node, name: bytes, stat: os.stat_result) -> None:
        """Bring nodes and entry up to date after a name is gone from the tree; ``stat`` is the file's before that."""
        core = self._core
        node = core.nodes.of_backing(stat.st_ino)
        if node is not None:
            core.nodes.drop_name(node, directory, name)
            if stat.st_nlink == 1 and node.opened is None:
                core.nodes.unbind(node)
            elif stat.st_nlink > 1:
                self._refresh(node, stat)
        elif stat.st_nlink == 1:
            core.removals.gone.add(stat.st_ino)

    def _refresh(self, node: Node, before: os.stat_result) -> None:
        core = self._core
        if node.opened is not None:
            core.refresh_entry(before, os.fstat(node.opened.fd))
        elif node.parent is not None:
            stat = core.local_stat(node.parent, node.name)
            if stat is not None and stat.st_ino == node.backing:
                core.refresh_entry(before, stat)

    async def _clear_in_store(self, parent: Node, name: bytes, child: ZonePath) -> Left:
        """Take an empty directory out of its store; return what is left there. Raises ``OSError`` and ``RemoteError``."""
        core = self._core
        remote = core.remote_of(child.zone)
        left = await self._whiteouts.left_of(child, trio.current_time() - core.config.remote.metadata_ttl_seconds)
        if left is Left.NOTHING:
            return left
        if left is Left.CONTENT or self._has_entries(parent, name):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        await remote.deletions.flush([path for path in remote.deletions.paths() if path.startswith(child.path + b"/")])
        await remote.access.prune(core.listing(child).key)
        return await self._whiteouts.left_of(child, trio.current_time())

    def _has_entries(self, parent: Node, name: bytes) -> bool:
        """Say whether there is anything in a directory of the tree."""
        core = self._core
        if core.local_stat(parent, name) is None:
            return False
        fd = core.store.tree.open_child(core.directories.descriptor(parent), name)
        try:
            with os.scandir(b"/proc/self/fd/%d" % fd) as entries:
                return next(entries, None) is not None
        finally:
            os.close(fd)

    def _forget_directory(
        self, place: ZonePath, child: ZonePath, name: bytes, stat: os.stat_result | None, left: Left
    ) -> None:
        """A directory has gone here; ``left`` is what its store has of it: what others have put there is to be seen."""
        core = self._core
        self._intents.directory_gone(child.path)
        if stat is not None:
            core.index.marks.let_go(stat.st_ino)
        if not place.zone.is_store:
            core.index.marks.white_out(child.path)
            return
        core.listing(place).remove(name)
        if left is Left.EMPTY:
            core.index.marks.white_out(child.path)
        else:
            core.index.marks.uncover(child.path)
            core.remote_of(place.zone).directories.forget_below(core.listing(child).key)
