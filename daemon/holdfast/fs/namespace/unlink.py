"""unlink: the deletion of the object is recorded, then the name is removed here."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from dataclasses import dataclass
from functools import partial

import trio

from holdfast.errors import HoldfastError, NoSuchEntryError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.name_policy import Name, NamePolicy
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lost_names import LostNames
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.writeback.remote_deletes import RemoteDeletes


@dataclass(eq=False)
class Unlinking:
    """Removes names of files."""

    _directories: Directories
    _nodes: NodeTable
    _policy: NamePolicy
    _hints: CreateHints
    _remote_deletes: RemoteDeletes
    _lost_names: LostNames
    _hot: HotFiles

    def unlink_nowait(self, directory: Node, name: bytes) -> None:
        """Unlink a file whose inode's lock nobody can hold. Raises ``trio.WouldBlock`` for all others."""
        self._unlink(self._policy.name(directory, name), FIRST, has_settled=False)

    async def unlink(self, directory: Node, name: bytes, attempt: Attempt = FIRST) -> None:
        """unlink(2). In a store's zone the object is deleted soon after (``transfer.deletions``)."""
        stat = self._directories.stat(directory, name)
        if stat is not None:
            await self._hot.settle(stat.st_ino)
        self._unlink(self._policy.name(directory, name), attempt, has_settled=True)

    def _unlink(self, name: Name, attempt: Attempt, *, has_settled: bool) -> None:
        stat = self._directories.stat(name.directory, name.name)
        if stat is None and (name.zone.remote is None or self._nodes.of_path(name.path) is None):
            if attempt.resent:
                return
            raise NoSuchEntryError(f"there is no {os.fsdecode(name.name)}")
        if stat is not None and stat_module.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        node = self._nodes.of_backing(stat.st_ino) if stat is not None else None
        hot = self._hot.of_node(node, stat.st_ino) if stat is not None else None
        if hot is not None and not has_settled:
            raise trio.WouldBlock
        undo = self._remote_deletes.delete(name, stat)
        if stat is not None:
            delete_again = partial(self._remote_deletes.delete, name, stat)
            try:
                self._lost_names.remove_name(name, stat, node, hot, delete_again)
            except (OSError, HoldfastError):
                undo()
                raise
        else:
            self._nodes.drop_path(name.path)
            self._directories.touch(name.directory)
        if name.zone.remote is not None and name.policy.awaits_rename:
            self._hints.temporary_gone(name.place.path, name.name)
