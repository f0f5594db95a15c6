"""unlink: the deletion of the object is recorded, then the name is removed here; and files that lose a name otherwise."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable
from functools import partial

from holdfast.errors import HoldfastError, NoSuchEntryError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.index import Entry
from holdfast.system.file_id import FileStat, file_stat


class LostNames:
    """Removes names of files. An open file that loses its last name is kept as an orphan."""

    def __init__(self, base: Foundation) -> None:
        self._directories, self._nodes, self._unlinks = base.directories, base.nodes, base.unlinks
        self._hot, self._copies, self._rooms = base.hot, base.copies, base.rooms
        self._store, self._entries = base.parts.store, base.parts.index.entries

    def waits(self, stat: FileStat, node: Node | None) -> bool:
        """Say whether ``settle`` waits, if only a moment, before the file of ``node`` loses a name."""
        return self._hot.written(node) is not None or (
            self._is_kept(stat, node) and self._rooms.of(stat.st_ino).lacks_spare()
        )

    async def settle(self, stat: FileStat, node: Node | None) -> None:
        """Wait for what must be before the file of ``node`` loses a name. Raises ``FileBusyError``.

        Its lock is free, and on a full disk copies have gone to make room for the name by which the next daemon finds it.
        """
        if self._is_kept(stat, node):
            await self._rooms.of(stat.st_ino).keep_spare()
        await self._hot.settle(stat.st_ino)

    def _is_kept(self, stat: FileStat, node: Node | None) -> bool:
        """Say whether the file loses its last name while it is open: then it gets another one (``Orphanage``)."""
        return stat.st_nlink == 1 and node is not None and node.opened is not None

    def remove_name(
        self,
        name: Name,
        stat: FileStat,
        node: Node | None,
        hot: OpenFile | None,
        late: Callable[[], object],
    ) -> None:
        """Remove a name of the file of ``node`` from the tree; ``hot`` is the file if it is hot (``HotFiles``).

        ``late`` is called if the name is removed after ``FileBusyError``.
        """
        fd = self._directories.changing_descriptor(name.directory)
        forgotten = self._copies.forget_name(name.path, stat)
        last = stat.st_nlink == 1
        self._unlinks.begin(stat.st_ino, is_last=last)
        try:
            if hot is not None:
                self._hot.unlink(hot, fd, name.name, then=partial(self._removed_late, name, stat, late))
            elif self._is_kept(stat, node):
                self._store.orphanage.take(fd, name.name, stat.st_ino)
            else:
                with self._store.freeing.later(name.name, fd, stat):
                    os.unlink(name.name, dir_fd=fd)
        except (OSError, HoldfastError):
            self._copies.remember(stat.st_ino, forgotten)
            raise
        self.name_removed(node, name, stat, forgotten)

    def name_removed(self, node: Node | None, name: Name, stat: FileStat, entry: Entry | None) -> None:
        """Update the file's node and entry after a name was removed from the tree.

        ``stat`` and ``entry`` are from before that; None if the file had no entry.
        """
        if node is not None:
            self._nodes.drop_name(node, name.directory, name.name)
            if stat.st_nlink == 1 and node.opened is None:
                self._nodes.unbind(node)
            elif stat.st_nlink > 1 and entry is not None:
                self._refresh(node, stat)
        elif stat.st_nlink == 1:
            self._unlinks.gone.add(stat.st_ino)

    def _removed_late(self, name: Name, stat: FileStat, late: Callable[[], object]) -> None:
        """Follow the removal of a name after its user was told that the file is busy."""
        found = self._directories.stat(name.directory, name.name)
        if found is None or found.st_ino != stat.st_ino:
            late()
            entry = self._copies.forget_name(self._directories.path(name.directory, name.name), stat)
            self.name_removed(self._nodes.of_backing(stat.st_ino), name, stat, entry)

    def _refresh(self, node: Node, before: FileStat) -> None:
        if node.opened is not None:
            self._entries.refresh(before, file_stat(node.opened.fd))
        elif node.parent is not None:
            stat = self._directories.stat(node.parent, node.name)
            if stat is not None and stat.st_ino == node.backing:
                self._entries.refresh(before, stat)

    def before_rename_over(self, name: Name, directory_fd: int, victim: FileStat) -> Entry | None:
        """Prepare for a rename over ``name``: the replaced file, ``victim``, is kept while it is open.

        Returns its entry, for ``was_not_renamed_over``.
        """
        if stat_module.S_ISDIR(victim.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        node = self._nodes.of_backing(victim.st_ino)
        opened = node.opened if node is not None else None
        if victim.st_nlink == 1 and opened is not None:
            if self._hot.is_hot(opened):
                self._hot.shelter(opened)
            else:
                self._store.orphanage.shelter(directory_fd, name.name, victim.st_ino)
        forgotten = self._copies.forget_name(name.path, victim)
        self._unlinks.begin(victim.st_ino, is_last=victim.st_nlink == 1)
        return forgotten

    def was_not_renamed_over(self, victim: FileStat, entry: Entry | None) -> None:
        """Undo ``before_rename_over``: the rename that it has prepared has failed, or comes late."""
        self._copies.remember(victim.st_ino, entry)

    def was_renamed_over_late(self, name: Name, victim: FileStat) -> Entry | None:
        """Note that a rename that came late has succeeded; return the entry of ``victim``, for ``name_removed``."""
        return self._copies.forget_name(self._directories.path(name.directory, name.name), victim)


class Unlinking:
    """Removes names of files."""

    def __init__(self, base: Foundation, hints: CreateHints, remote_deletes: RemoteDeletes, lookup: Lookup) -> None:
        self._directories, self._nodes, self._policy, self._hot = base.directories, base.nodes, base.policy, base.hot
        self._hints = hints
        self._remote_deletes = remote_deletes
        self._lookup = lookup
        self._lost_names = LostNames(base)

    async def unlink(self, directory: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """unlink(2). In a store's zone the object is deleted soon after (``transfer.deletions``).

        Raises ``RemoteError`` if only the store knows the name and it does not answer.
        """
        stat, node, hot = self._look(directory, name)
        if stat is None and self._lookup.is_unknown(directory, name):
            await self._lookup.learn(directory, name)
            stat, node, hot = self._look(directory, name)
        if stat is not None and (hot is not None or self._lost_names.waits(stat, node)):
            await self._lost_names.settle(stat, node)
            stat, node, hot = self._look(directory, name)
        self._unlink(self._policy.name(directory, name), stat, node, hot, attempt)

    def _look(self, directory: Node, name: bytes) -> tuple[FileStat | None, Node | None, OpenFile | None]:
        """Return the attributes of the file, its node, and the open file if it is hot (``HotFiles``)."""
        stat = self._directories.stat(directory, name)
        if stat is None:
            return None, None, None
        node = self._nodes.of_backing(stat.st_ino)
        return stat, node, self._hot.of_node(node, stat.st_ino)

    def _unlink(self, name: Name, stat: FileStat | None, node: Node | None, hot: OpenFile | None, attempt: Attempt) -> None:
        if stat is None:
            self._unlink_remote(name, attempt)
        elif stat_module.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        else:
            delete = partial(self._remote_deletes.delete, name, stat)
            undo = delete()
            try:
                self._lost_names.remove_name(name, stat, node, hot, delete)
            except (OSError, HoldfastError):
                undo()
                raise
        if name.zone.remote is not None and name.policy.awaits_rename:
            self._hints.temporary_gone(name.place.path, name.name)

    def _unlink_remote(self, name: Name, attempt: Attempt) -> None:
        """Unlink a name that exists only in the store."""
        if name.zone.remote is not None and self._nodes.of_path(name.path) is not None:
            self._remote_deletes.delete(name, None)
            self._nodes.drop_path(name.path)
            self._directories.touch(name.directory)
        elif not attempt.resent:
            raise NoSuchEntryError(f"there is no {os.fsdecode(name.name)}")
