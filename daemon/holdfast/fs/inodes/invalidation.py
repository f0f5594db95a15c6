"""Files that come and go without a request (fetched, evicted, replaced, corrupt): what nodes and kernel learn of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

import trio

from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.nodes import Node, NodeTable, path_of
from holdfast.fs.inodes.pending_unlinks import PendingUnlinks
from holdfast.store import Tree


class KernelNotifications(Protocol):
    """What the kernel can be told without having asked (``fuse.kernel_side``)."""

    def attributes_changed(self, node_id: int) -> None:
        """Make the kernel ask for the attributes of a node again."""

    def invalidate(self, parent: int, name: bytes) -> None:
        """Make the kernel forget the name in the directory with the node id ``parent``, soon; return at once."""

    def invalidate_now(self, parent: int, name: bytes) -> None:
        """Return when the kernel has forgotten the name. Raises ``OSError``.

        Not to be called on the event loop: the kernel may first need answers to requests.
        """

    async def caught_up(self) -> None:
        """Return when every request that the kernel has sent by now is read."""


class NoKernel:
    """There is no mount: nobody needs to be told."""

    def attributes_changed(self, node_id: int) -> None:
        """Do nothing."""

    def invalidate(self, parent: int, name: bytes) -> None:
        """Do nothing."""

    def invalidate_now(self, parent: int, name: bytes) -> None:
        """Do nothing."""

    async def caught_up(self) -> None:
        """Return soon."""
        await trio.lowlevel.checkpoint()


class Invalidation:
    """The listener of ``transfer.CachedCopies``, and whoever else changes the tree behind the kernel's back comes here."""

    def __init__(
        self,
        nodes: NodeTable,
        directories: Directories,
        tree: Tree,
        unlinks: PendingUnlinks,
        kernel: KernelNotifications,
    ) -> None:
        self._nodes = nodes
        self._directories = directories
        self._tree = tree
        self._unlinks = unlinks
        self.attributes_changed = kernel.attributes_changed
        self.invalidate = kernel.invalidate
        self.invalidate_now = kernel.invalidate_now
        self.caught_up = kernel.caught_up

    def before_attributes(self, node: Node) -> None:
        """Call before replying with attributes: what the kernel must not keep of them, it then shows without keeping it."""
        if node.backing in self._unlinks.losing:
            self.attributes_changed(node.id)  # from now on: an answer to what was asked before is shown, not kept

    def is_open(self, inode: int) -> bool:
        """Say whether anybody has the file ``inode`` open."""
        node = self._nodes.of_backing(inode)
        return node is not None and node.opened is not None

    def file_placed(self, path: bytes, stat: os.stat_result) -> None:
        """The object at ``path`` has a file now, and so have the directories above it."""
        while path:
            node = self._nodes.of_path(path)
            if node is None:
                return
            self._nodes.bind(node, path, stat.st_ino)
            path = path.rpartition(b"/")[0]
            stat = self._tree.stat(path)

    def file_left(self, path: bytes, inode: int, *, same_object: bool) -> None:
        """A name lost its file, or a directory that nothing implied any more went."""
        nodes = self._nodes
        node = nodes.of_backing(inode)
        if node is None:
            self._invalidate_unknown(path)
            return
        parent, name = self._name_at(node, path)
        if parent is None:
            return
        self.invalidate(parent.id, name)
        if node.is_directory:
            self._directories.forget(node)
        keeps_name = same_object and node.opened is None and len(node.names()) == 1
        if not keeps_name:
            nodes.drop_name(node, parent, name)
        if node.opened is None and (keeps_name or not node.is_named):
            nodes.unbind(node)
            if keeps_name:
                nodes.to_path(node, path)

    def directory_thrown(self, path: bytes, inode: int) -> list[Node]:
        """A directory was taken away with all that is in it; who has files open in it keeps them, nameless.

        Returns the files in it that have names elsewhere too: by those they are found from now on.
        """
        self.file_left(path, inode, same_object=False)
        self._directories.renamed()
        return [node for node in self._drop_dead_names() if node.is_named]

    def file_corrupt(self, inode: int) -> None:
        """Nobody may read the file ``inode`` any more."""
        node = self._nodes.of_backing(inode)
        if node is not None and node.opened is not None:
            node.opened.became_corrupt()

    def _drop_dead_names(self) -> list[Node]:
        """Take from all files the names that lead nowhere, because a directory above them has gone; return those files."""
        dead: dict[int, bool] = {}
        losers = []
        for node in self._nodes.all():
            names: Iterable[tuple[Node, bytes]] = () if node.is_directory else node.names()
            for parent, name in names:
                if parent.id not in dead:
                    dead[parent.id] = path_of(parent) is None
                if dead[parent.id]:
                    self._nodes.drop_name(node, parent, name)
                    losers.append(node)
        return losers

    def _invalidate_unknown(self, path: bytes) -> None:
        """The kernel may know the name from an earlier daemon, whose nodes become this one's only when it asks for them."""
        parent, _, name = path.rpartition(b"/")
        inode = self._tree.inode(parent)
        if inode:
            self.invalidate(self._nodes.id_of(inode), name)

    def _name_at(self, node: Node, path: bytes) -> tuple[Node | None, bytes]:
        """Return which name of a node is at ``path``. By names alone: its zone need not be configured any more."""
        above, _, last = path.rpartition(b"/")
        for parent, name in node.names():
            if name == last and path_of(parent) == above:
                return parent, name
        return None, b""
