"""Handling of files that lose a name, by an unlink or by a rename over it."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable
from functools import partial

from holdfast.errors import HoldfastError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.index import Entry
from holdfast.system.file_id import FileStat, file_stat


class LostNames:
    """Removes names of files. An open file that loses its last name is kept as an orphan."""

    def __init__(self, base: Foundation) -> None:
        self._directories, self._nodes, self._unlinks = base.directories, base.nodes, base.unlinks
        self._updates, self._hot, self._copies, self._store = base.updates, base.hot, base.copies, base.parts.store

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
            elif last and node is not None and node.opened is not None:
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
            self._updates.refresh(before, file_stat(node.opened.fd))
        elif node.parent is not None:
            stat = self._directories.stat(node.parent, node.name)
            if stat is not None and stat.st_ino == node.backing:
                self._updates.refresh(before, stat)

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
