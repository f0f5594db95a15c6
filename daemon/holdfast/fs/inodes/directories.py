"""Directories by node: their place (zone and path), and descriptors of their backing directories.

Every operation on the tree goes through the ``O_PATH`` descriptor of a directory and one name. Descriptors are kept for the
directories used last; a directory that exists only in the store has none until something is put into it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Protocol

from holdfast.errors import NoSuchEntryError
from holdfast.fs.inodes.attributes import FOREVER_SECONDS
from holdfast.fs.inodes.nodes import Node, NodeTable, path_of
from holdfast.store import Tree
from holdfast.transfer import CachedCopies, Ownership
from holdfast.zones import ZoneMap, ZonePath

_MOST_DESCRIPTORS = 2048


class DirectoryReplies(Protocol):
    """Who answers for directories from their descriptors (``kernel.Connection``)."""

    def serve_directory_from(self, node: int, fd: int, seconds: float, *, whole: bool) -> None:
        """Answer for the directory with this node id from its descriptor, until told to stop.

        The kernel may keep what is said of it for ``seconds``. ``whole``: what is not in it is nowhere.
        """

    def stop_serving_directory(self, node: int) -> None:
        """Stop answering from its descriptor, if that was being done."""


class NoDirectoryReplies:
    """Answers nothing."""

    def serve_directory_from(self, node: int, fd: int, seconds: float, *, whole: bool) -> None:
        """Decline."""

    def stop_serving_directory(self, node: int) -> None:
        """Have nothing to stop."""


class Directories:
    """Places and descriptors. ``renamed`` must be called whenever a directory got another path.

    ``remote_seconds``: for how long the kernel may keep the attributes of a directory that a store shines through.
    """

    def __init__(self, nodes: NodeTable, tree: Tree, zones: ZoneMap, residence: CachedCopies, remote_seconds: float) -> None:
        self._nodes = nodes
        self._tree = tree
        self._zones = zones
        self._residence = residence
        self._remote_seconds = remote_seconds
        self._descriptors: OrderedDict[int, int] = OrderedDict()
        self._epoch = 0
        self._replies: DirectoryReplies = NoDirectoryReplies()

    def served_by(self, borrower: DirectoryReplies) -> None:
        """Lend the descriptors of all directories but the root, those to come too."""
        self._replies = borrower
        for node_id, fd in self._descriptors.items():
            node = self._nodes.known(node_id)
            assert node is not None
            self._lend(node, fd)

    def place(self, node: Node) -> ZonePath:
        """Return where a directory is. Raises ``NoSuchEntryError`` when it was removed."""
        cached = node.place
        if cached is not None and cached[0] == self._epoch:
            return cached[1]
        if node is self._nodes.root:
            place: ZonePath | None = self._zones.root
        elif node.parent is None:
            raise NoSuchEntryError("the directory was removed")
        else:
            place = self._zones.child(self.place(node.parent), node.name)
        if place is None:
            raise NoSuchEntryError(f"no zone has a directory {os.fsdecode(node.name)}")
        node.place = self._epoch, place
        return place

    def is_ours(self, node: Node) -> bool:
        """Say whether a directory changes only through the mount, or by this daemon: the kernel may keep its listing."""
        return self.place(node).zone.remote is None

    def seconds(self, node: Node) -> float:
        """Return for how long the kernel may keep the attributes of a directory, and of what is in it."""
        return FOREVER_SECONDS if self.is_ours(node) else self._remote_seconds

    def descriptor(self, node: Node) -> int:
        """Return the ``O_PATH`` descriptor of a directory that has a backing directory; it stays this object's.

        Raises ``NoSuchEntryError`` when it was removed, or exists only in the store.
        """
        fd = self._descriptors.get(node.id)
        if fd is not None:
            self._descriptors.move_to_end(node.id)
            return fd
        if node is self._nodes.root:
            fd = self._tree.open_directory(b"")
        elif node.parent is None:
            raise NoSuchEntryError("the directory was removed")
        elif node.backing == 0:
            raise NoSuchEntryError(f"{os.fsdecode(node.name)} exists only in the store")
        else:
            fd = self._tree.open_child(self.descriptor(node.parent), node.name)
        self._keep(node, fd)
        return fd

    def backed_descriptor(self, node: Node, ownership: Ownership) -> int:
        """Return the descriptor of a directory, after creating its backing directory if there is none yet."""
        if node.backing == 0:
            path = path_of(node)
            if path is None:
                raise NoSuchEntryError("the directory was removed")
            os.close(self._residence.make_directories(path, ownership))
            self.adopt(node)
        return self.descriptor(node)

    def adopt(self, node: Node) -> None:
        """Bind a directory node, and those above it, to backing directories that exist by now."""
        assert node.parent is not None
        if node.parent.backing == 0:
            self.adopt(node.parent)
        stat = os.stat(node.name, dir_fd=self.descriptor(node.parent), follow_symlinks=False)
        path = path_of(node)
        assert path is not None
        self._nodes.bind(node, path, stat.st_ino)

    def renamed(self) -> None:
        """Forget all places: a directory has another path now."""
        self._epoch += 1

    def forget(self, node: Node) -> None:
        """Close the descriptor of a directory that was removed or left the table."""
        fd = self._descriptors.pop(node.id, None)
        if fd is not None:
            self._close(node.id, fd)

    def close(self) -> None:
        """Close all descriptors."""
        for node_id, fd in self._descriptors.items():
            self._close(node_id, fd)
        self._descriptors.clear()

    def _keep(self, node: Node, fd: int) -> None:
        self._descriptors[node.id] = fd
        self._lend(node, fd)
        if len(self._descriptors) > _MOST_DESCRIPTORS:
            oldest_id, oldest = self._descriptors.popitem(last=False)
            self._close(oldest_id, oldest)

    def _lend(self, node: Node, fd: int) -> None:
        if node is self._nodes.root:
            return
        self._replies.serve_directory_from(node.id, fd, self.seconds(node), whole=self.is_ours(node))

    def _close(self, node_id: int, fd: int) -> None:
        self._replies.stop_serving_directory(node_id)
        os.close(fd)
