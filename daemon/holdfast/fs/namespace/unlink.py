"""unlink: the deletion of the object is recorded, then the name is removed here."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from functools import partial

from holdfast.errors import HoldfastError, NoSuchEntryError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.lost_names import LostNames
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.system.file_id import FileStat


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
        if stat is not None and (hot is not None or self._hot.is_written(stat.st_ino)):
            await self._hot.settle(stat.st_ino)
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
