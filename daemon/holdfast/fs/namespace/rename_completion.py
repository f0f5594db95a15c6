"""The steps before and after a rename in the tree that wait for this disk or for a queue.

A file that leaves a store has its only copy on this disk: its bytes, which are those of the object, and its new name are
durable before the object goes. A file whose new object is sent later is queued. A crash in between leaves the bytes under at
least one of the names.
"""

from __future__ import annotations

import logging
import stat as stat_module
from typing import NamedTuple

from holdfast.errors import CorruptEntryError, HoldfastError, LostBytesError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.writeback.sending import Sending
from holdfast.index import CachedName, EntryState
from holdfast.system.file_id import FileId, FileStat

_log = logging.getLogger("holdfast.fs")


class FileMove(NamedTuple):
    """A rename of a file. ``stat`` holds its attributes before the rename."""

    old: Name
    new: Name
    flags: int
    stat: FileStat

    def is_of(self, stat: FileStat) -> bool:
        """Say whether these attributes are those of the moved file."""
        return stat.st_ino == self.stat.st_ino


class RenameCompletion:
    """Completes renames of files: now, late, or for an earlier daemon."""

    def __init__(self, base: Foundation, sending: Sending, files: Files) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._entries, self._copies, self._losses = base.parts.index.entries, base.copies, base.losses
        self._remote_deletes, self._queue = sending.remote_deletes, sending.queue
        self._files, self._check, self._background = files.files, files.check, files.background

    async def sync_file(self, move: FileMove) -> None:
        """Make the bytes of a file durable before it leaves the store. A copy that lacks bytes of its object is dropped.

        The digest tells what the disk has refused after the kernel has forgotten it, which it does with the inode. Raises
        ``OSError``, ``LostBytesError`` and ``CorruptEntryError``: then the object stays.
        """
        path, inode = move.old.path, move.stat.st_ino
        node = self._nodes.local(move.old.directory, move.old.name, inode, move.stat.st_mode)
        try:
            with self._files.descriptor_of(node) as fd:
                await self._losses.sync(fd)
                if self._is_copy(inode) and not await self._check.still_matches(path, fd):
                    raise CorruptEntryError("the file differed from its object, and was put aside: try again")
                if await self._losses.has_lost(fd):
                    raise LostBytesError
        except LostBytesError:
            if self._is_copy(inode):
                self._copies.drop(path, inode, same_object=True)
            raise

    def _is_copy(self, inode: FileId) -> bool:
        """Say whether the store has the bytes of the file."""
        entry = self._entries.get(inode)
        return entry is not None and entry.state is EntryState.CLEAN

    async def complete(self, move: FileMove, leaves: CachedName | None, *, is_unsent: bool) -> None:
        """Complete the rename of a file that has its new name. ``leaves``: the version of the old name's object, which goes.

        Raises ``OSError``.
        """
        if is_unsent:
            node = self._nodes.local(move.new.directory, move.new.name, move.stat.st_ino, move.stat.st_mode)
            await self.queue(node, move.new.path)
        if leaves is not None or is_unsent:
            await self._directories.sync(move.new.directory)
        if leaves is not None and self._directories.stat(move.old.directory, move.old.name) is None:
            self._remote_deletes.delete_object(move.old, leaves)

    async def queue(self, node: Node, path: bytes) -> None:
        """Mark a file unsent and queue it for its new name. It may have been unmarked under its old one."""
        with self._files.descriptor_of(node) as fd:
            await self._queue.keep_named(fd, path)

    def complete_later(self, move: FileMove, leaves: CachedName | None, *, is_unsent: bool) -> None:
        """Complete a rename whose user was told that the file is busy."""
        self._background.start_soon(self._complete_late, move, leaves, is_unsent)

    async def _complete_late(self, move: FileMove, leaves: CachedName | None, is_unsent: bool) -> None:
        try:
            found = self._directories.stat(move.new.directory, move.new.name)
            is_there = found is not None and found.st_ino == move.stat.st_ino
            await self.complete(move, leaves, is_unsent=is_unsent and is_there)
        except (OSError, HoldfastError) as problem:
            _log.warning("a rename of a file that was held up can't be completed: %s", problem)

    async def finish_resent(self, source: Node, old: bytes, target: Node, new: bytes) -> None:
        """Repeat all steps of a rename that an earlier daemon carried out but the first: the file has its new name."""
        self._directories.renamed()
        gone, there = self._policy.name(source, old), self._policy.name(target, new)
        stat = self._directories.stat(target, new)
        leaves = None
        if gone.zone.is_store and gone.sends:
            leaves = self._remote_deletes.left_by_earlier_daemon(gone, stat)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        if stat is not None and entry is not None:
            entry.drop_name(gone.path)
            self._entries.put(stat.st_ino, entry)
        is_unsent = there.zone.sends_later and there.sends
        if is_unsent and stat is not None and stat_module.S_ISREG(stat.st_mode):
            node = self._nodes.local(target, new, stat.st_ino, stat.st_mode)
            await self.queue(node, there.path)
        if leaves is not None and self._directories.stat(source, old) is None:
            self._remote_deletes.delete_object(gone, leaves)
