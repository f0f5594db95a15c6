"""Objects that a sweep of this daemon's has deleted in the store: what this node has and believes of them follows.

The copies go as after an eviction, but for good: who has one open keeps reading it. The kernel forgets the names, and the
beliefs about directories hear of it, so that no LIST that was under way brings a name back.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.fs.inodes.nodes import NodeTable
from holdfast.index import EntryState, Index
from holdfast.store import Tree
from holdfast.transfer import CachedCopies, Fetcher, Remote

_IN_ONE_GO = 50


class DeletedObjects:
    """This node's side of ``checkpoints.sweeps``: zones are the stores' names, keys those of their objects."""

    def __init__(
        self,
        remotes: Mapping[str, Remote],
        nodes: NodeTable,
        tree: Tree,
        index: Index,
        copies: CachedCopies,
        fetcher: Fetcher,
        invalidation: Invalidation,
    ) -> None:
        self._remotes = remotes
        self._nodes = nodes
        self._tree = tree
        self._index = index
        self._copies = copies
        self._fetcher = fetcher
        self._invalidation = invalidation

    def in_use(self, zone: str, key: str) -> bool:
        """Say whether bytes of the object are only here, or may be: nothing of it may be deleted then."""
        inode = self._tree.inode(_path(zone, key))
        if not inode:
            return False
        node = self._nodes.of_backing(inode)
        if node is not None and node.opened is not None and node.opened.may_change:
            return True
        entry = self._index.entries.get(inode)
        return entry is None or entry.state is not EntryState.CLEAN

    async def gone(self, zone: str, keys: list[str]) -> None:
        """Forget objects, some at a time, for requests are answered in between; then the kernel has forgotten them too."""
        untold: list[tuple[int, bytes]] = []
        for index, key in enumerate(keys):
            self._gone(zone, key, untold)
            if index % _IN_ONE_GO == _IN_ONE_GO - 1:
                await trio.lowlevel.checkpoint()
        await trio.to_thread.run_sync(self._tell, untold)

    async def directory_gone(self, zone: str, key: str, *, for_good: bool) -> None:
        """Believe nothing any more of a directory that the store may have removed.

        The one here stays, for somebody may be about to write into it, until a listing shows that nothing implies it any
        more; unless it is gone ``for_good``, and empty.
        """
        path = _path(zone, key)
        inode = self._tree.inode(path)
        if for_good and inode and not self._index.marks.is_held(inode):
            self._copies.drop_directory(path)
        directories = self._remotes[zone].directories
        directories.forget_below(key)
        directories.deleted(key)
        await trio.lowlevel.checkpoint()

    def _gone(self, zone: str, key: str, untold: list[tuple[int, bytes]]) -> None:
        if self.in_use(zone, key):  # somebody has begun to write it anew
            return
        path = _path(zone, key)
        parent, _, name = path.rpartition(b"/")
        directory = self._nodes.of_path(parent) or self._nodes.of_backing(self._tree.inode(parent))
        self._remotes[zone].directories.deleted(key)
        self._fetcher.detach(path)
        self._drop_copy(path)
        self._copies.drop_sidecar(path)
        node = self._nodes.of_path(path)
        if node is not None and not node.is_directory:
            self._nodes.drop_path(path)
        if directory is not None:
            untold.append((directory.id, name))

    def _tell(self, untold: list[tuple[int, bytes]]) -> None:
        for directory, name in untold:
            self._invalidation.invalidate_now(directory, name)

    def _drop_copy(self, path: bytes) -> None:
        inode = self._tree.inode(path)
        if inode:
            self._copies.drop(path, inode)


def _path(zone: str, key: str) -> bytes:
    return f"{zone}/{key}".encode()
