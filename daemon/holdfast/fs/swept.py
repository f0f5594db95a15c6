"""Objects that a sweep of this daemon's has deleted in the store: what this node has and believes of them follows.

The copies go as after an eviction, but for good: who has one open keeps reading it. The kernel forgets the names, and the
beliefs about directories hear of it, so that no LIST that was under way brings a name back.
"""

from __future__ import annotations

import trio

from holdfast.fs.core import Core
from holdfast.fs.presence import Presence
from holdfast.index import EntryState

_IN_ONE_GO = 50


class SweptObjects:
    """This node's side of ``checkpoints.sweeps``: zones are the stores' names, keys those of their objects."""

    def __init__(self, core: Core, presence: Presence) -> None:
        self._core = core
        self._presence = presence

    def in_use(self, zone: str, key: str) -> bool:
        """Say whether bytes of the object are only here, or may be: nothing of it may be deleted then."""
        core = self._core
        inode = core.store.tree.inode(_path(zone, key))
        if not inode:
            return False
        node = core.nodes.of_backing(inode)
        if node is not None and node.opened is not None and (node.opened.unsent or node.opened.stamp is not None):
            return True
        entry = core.index.entries.get(inode)
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
        core = self._core
        path = _path(zone, key)
        inode = core.store.tree.inode(path)
        if for_good and inode and not core.index.marks.is_held(inode):
            core.residence.drop_directory(path)
        directories = core.remotes[zone].directories
        directories.forget_below(key)
        directories.deleted(key)
        await trio.lowlevel.checkpoint()

    def _gone(self, zone: str, key: str, untold: list[tuple[int, bytes]]) -> None:
        if self.in_use(zone, key):  # somebody has begun to write it anew
            return
        core = self._core
        path = _path(zone, key)
        parent, _, name = path.rpartition(b"/")
        directory = core.nodes.of_path(parent) or core.nodes.of_backing(core.store.tree.inode(parent))
        core.remotes[zone].directories.deleted(key)
        core.fetcher.detach(path)
        self._drop_copy(path)
        core.residence.drop_sidecar(path)
        node = core.nodes.of_path(path)
        if node is not None and not node.is_directory:
            core.nodes.drop_path(path)
        if directory is not None:
            untold.append((directory.id, name))

    def _tell(self, untold: list[tuple[int, bytes]]) -> None:
        for directory, name in untold:
            self._presence.invalidate_now(directory, name)

    def _drop_copy(self, path: bytes) -> None:
        inode = self._core.store.tree.inode(path)
        if inode:
            self._core.residence.drop(path, inode)


def _path(zone: str, key: str) -> bytes:
    return f"{zone}/{key}".encode()
