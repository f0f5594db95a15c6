"""Making a node local: fetched whole, verified and in the tree, for operations that need the file itself."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.fs.file_io.arriving import ArrivingFiles
from holdfast.fs.file_io.cache_miss import CacheMiss
from holdfast.fs.file_io.digest_check import DigestCheck
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.node import Node


@dataclass(eq=False)
class LocalFiles:
    """Makes nodes local for links, renames, changes of attributes and prefetches."""

    misses: CacheMiss
    arriving: ArrivingFiles
    check: DigestCheck
    _locks: NodeLocks

    def is_local(self, node: Node) -> bool:
        """Say whether ``make_local`` has nothing to do: the file is here, whole, and need not be read to be checked."""
        if node.is_directory:
            return True
        if node.backing == 0 or self._locks.is_held(node):
            return False
        opened = node.opened
        return self.check.is_closed_file_checked(node) if opened is None else opened.arrival is None

    async def make_local(self, node: Node) -> None:
        """Return when the node's bytes are whole, verified and in the tree. Raises ``HoldfastError``."""
        if self.is_local(node):
            return
        async with self._locks.of(node):
            was_corrupt = node.backing != 0 and node.opened is None and not await self.check.is_closed_file_intact(node)
            if node.backing == 0:
                await self.misses.fetch_whole(node, was_corrupt=was_corrupt)
                return
        if node.opened is not None:
            await self.arriving.wait_whole(node.opened)
