"""Replay of a rename that an earlier daemon carried out in the tree, perhaps without the steps that follow."""

from __future__ import annotations

import stat as stat_module

from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.rename_completion import RenameCompletion
from holdfast.fs.writeback.sending import Sending


class RenameReplay:
    """Finishes renames that the kernel has resent."""

    def __init__(self, base: Foundation, sending: Sending, completion: RenameCompletion) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._entries = base.parts.index.entries
        self._versions, self._remote_deletes, self._queue = sending.versions, sending.remote_deletes, sending.queue
        self._completion = completion

    async def finish(self, source: Node, old: bytes, target: Node, new: bytes) -> None:
        """Repeat all steps of a rename but the first: the file has its new name."""
        self._directories.renamed()
        gone, there = self._policy.name(source, old), self._policy.name(target, new)
        stat = self._directories.stat(target, new)
        leaves = None
        if gone.zone.is_store and gone.sends:
            leaves = self._versions.left_by_earlier_daemon(gone, stat)
        entry = self._entries.get(stat.st_ino) if stat is not None else None
        if stat is not None and entry is not None:
            entry.drop_name(gone.path)
            self._entries.put(stat.st_ino, entry)
        is_unsent = self._queue.takes(there) and there.sends
        if is_unsent and stat is not None and stat_module.S_ISREG(stat.st_mode):
            node = self._nodes.local(target, new, stat.st_ino, stat.st_mode)
            await self._completion.queue(node, there.path)
        if leaves is not None and self._directories.stat(source, old) is None:
            self._remote_deletes.delete_object(gone, leaves)
