"""The nodes hear of files that come and go without the kernel's asking: fetched, evicted, replaced in the store, corrupt."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import trio

from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node, path_of

Invalidate = Callable[[int, bytes], None]
"""Tells the kernel to forget what it knows of the name in the directory with that node id."""


class Invalidation:
    """The listener of ``transfer.CachedCopies``.

    ``attributes_changed`` makes the kernel ask for the attributes of a node again, given its id. ``invalidate`` returns at
    once, the kernel follows soon; ``invalidate_now`` returns when the kernel has done it, and must
    not be called on the event loop, because the kernel may first need answers to requests. ``caught_up`` returns when every
    request that the kernel has sent by now is read. Without a mount all of them do nothing.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.attributes_changed: Callable[[int], None] = _nobody_asks
        self.invalidate: Invalidate = _nobody_to_tell
        self.invalidate_now: Invalidate = _nobody_to_tell
        self.caught_up: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        core.residence.listener = self

    def about_to_tell(self, node: Node) -> None:
        """The kernel is told the attributes of a node next, because it asked; what it must not keep of them, it won't."""
        if node.backing in self._core.removals.losing:
            self.attributes_changed(node.id)  # from now on: an answer to what was asked before is shown, not kept

    def is_open(self, inode: int) -> bool:
        """Say whether anybody has the file ``inode`` open."""
        node = self._core.nodes.of_backing(inode)
        return node is not None and node.opened is not None

    def file_placed(self, path: bytes, stat: os.stat_result) -> None:
        """The object at ``path`` has a file now, and so have the directories above it."""
        nodes = self._core.nodes
        while path:
            node = nodes.of_path(path)
            if node is None:
                return
            nodes.bind(node, path, stat.st_ino)
            path = path.rpartition(b"/")[0]
            stat = self._core.store.tree.stat(path)

    def file_left(self, path: bytes, inode: int, *, same_object: bool) -> None:
        """A name lost its file, or a directory that nothing implied any more went."""
        core = self._core
        node = core.nodes.of_backing(inode)
        if node is None:
            self._invalidate_unknown(path)
            return
        parent, name = self._name_at(node, path)
        if parent is None:
            return
        self.invalidate(parent.id, name)
        if node.is_directory:
            core.directories.forget(node)
        keeps_name = same_object and node.opened is None and len(node.names()) == 1
        if not keeps_name:
            core.nodes.drop_name(node, parent, name)
        if node.opened is None and (keeps_name or not node.is_named):
            core.nodes.unbind(node)
            if keeps_name:
                core.nodes.to_path(node, path)

    def directory_thrown(self, path: bytes, inode: int) -> list[Node]:
        """A directory was taken away with all that is in it; who has files open in it keeps them, nameless.

        Returns the files in it that have names elsewhere too: by those they are found from now on.
        """
        core = self._core
        self.file_left(path, inode, same_object=False)
        core.directories.renamed()
        return [node for node in self._drop_dead_names() if node.is_named]

    def file_corrupt(self, inode: int) -> None:
        """Nobody may read the file ``inode`` any more."""
        node = self._core.nodes.of_backing(inode)
        if node is not None and node.opened is not None:
            node.opened.corrupt = True

    def _drop_dead_names(self) -> list[Node]:
        """Take from all files the names that lead nowhere, because a directory above them has gone; return those files."""
        nodes = self._core.nodes
        dead: dict[int, bool] = {}
        losers = []
        for node in nodes.all():
            for parent, name in [] if node.is_directory else node.names():
                if parent.id not in dead:
                    dead[parent.id] = path_of(parent) is None
                if dead[parent.id]:
                    nodes.drop_name(node, parent, name)
                    losers.append(node)
        return losers

    def _invalidate_unknown(self, path: bytes) -> None:
        """The kernel may know the name from an earlier daemon, whose nodes become this one's only when it asks for them."""
        parent, _, name = path.rpartition(b"/")
        inode = self._core.store.tree.inode(parent)
        if inode:
            self.invalidate(self._core.nodes.id_of(inode), name)

    def _name_at(self, node: Node, path: bytes) -> tuple[Node | None, bytes]:
        for parent, name in node.names():
            if self._core.directories.place(parent).child_path(name) == path:
                return parent, name
        return None, b""


def _nobody_to_tell(parent: int, name: bytes) -> None:
    del parent, name


def _nobody_asks(node_id: int) -> None:
    del node_id
