"""Recovery of the nodes that the kernel knows from an earlier daemon.

Most ids are inode numbers. A walk of the tree at the start, which reads only directory entries, finds the names of each, and
the node is made when the kernel first uses the id. All other ids come from the session records, and their nodes are made
at once. A name from the walk may have been moved since, so it is checked by lstat before it is used.

The kernel's reference counts are not known. So a node may leave the table too early, mostly when an inode number is reused
and the kernel forgets the earlier file late. The names of each leaving node are kept so that it can be found again.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable, Collection
from contextlib import suppress

from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.session import NodeRecord, SessionRecords
from holdfast.store import Tree

Names = dict[int, list[tuple[int, bytes]]]
"""By inode number: its names, each as a pair of the directory's inode number and the name."""


class NodeRecovery:
    """The node table's ``EarlierNodes``. It is empty until ``load``, which is called only on a takeover."""

    def __init__(
        self,
        records: SessionRecords,
        orphan_inodes: Callable[[], Collection[int]],
        stat: Callable[[Node, bytes], os.stat_result | None],
    ) -> None:
        self._session_records = records
        self._orphan_inodes = orphan_inodes
        self._stat = stat
        self._is_loaded = False
        self._names: Names = {}
        self._records: dict[int, NodeRecord] = {}
        self._ids: dict[int, int] = {}

    def load(self, table: NodeTable, names: Names) -> None:
        """Take the names that a walk of the tree found, and make the nodes in the session records."""
        self._is_loaded = True
        self._names = names
        self._records = dict(self._session_records.nodes())
        self._ids = {record.backing: node_id for node_id, record in self._records.items() if record.backing}
        for node_id in list(self._records):
            if table.known(node_id) is None and self.find(table, node_id) is None:
                self._session_records.drop(node_id)
        self._ids.clear()

    def node_left(self, node: Node) -> None:
        """A node leaves the table: remember its current names."""
        if self._is_loaded and node.id == node.backing:
            self._names[node.id] = [(parent.backing, name) for parent, name in node.names()]

    def node_made(self, table: NodeTable, node: Node) -> None:
        """A node was made for one of its names: add the other names, which the kernel may know too."""
        if self._is_loaded and len(self._names.get(node.backing, ())) > 1:
            for parent, name in self._still(table, node.backing):
                table.add_name(node, parent, name)

    def find(self, table: NodeTable, node_id: int) -> Node | None:
        """Return the node that the kernel knows by this id; None if it no longer exists."""
        if not self._is_loaded:
            return None
        record = self._records.pop(node_id, None)
        if record is not None:
            return self._written_down(table, node_id, record)
        if node_id in self._ids or table.of_backing(node_id) is not None:
            return None  # a file with another id
        return self._with_file(table, node_id, node_id)

    def _written_down(self, table: NodeTable, node_id: int, record: NodeRecord) -> Node | None:
        if record.backing:
            return self._with_file(table, node_id, record.backing)
        parent = table.known(record.parent) or self.find(table, record.parent)
        return table.inherit(node_id, 0, record.is_directory, [(parent, record.name)]) if parent else None

    def _with_file(self, table: NodeTable, node_id: int, inode: int) -> Node | None:
        names = self._still(table, inode)
        if not names:
            is_orphan = inode in self._orphan_inodes()
            return table.inherit(node_id, inode, False, []) if is_orphan else None
        stat = self._stat(*names[0])
        is_directory = stat is not None and stat_module.S_ISDIR(stat.st_mode)
        return table.inherit(node_id, inode, is_directory, names)

    def _still(self, table: NodeTable, inode: int) -> list[tuple[Node, bytes]]:
        """Return those of the remembered names that still lead to ``inode``."""
        names = []
        for directory_inode, name in self._names.get(inode, ()):
            parent = self._directory(table, directory_inode)
            stat = self._stat(parent, name) if parent is not None else None
            if parent is not None and stat is not None and stat.st_ino == inode:
                names.append((parent, name))
        return names

    def _directory(self, table: NodeTable, inode: int) -> Node | None:
        """Return the directory with this inode number; None if it is gone, even if a file has the number now."""
        node = table.of_backing(inode) or self.find(table, self._ids.get(inode, inode))
        return node if node is not None and node.is_directory else None


def stat_by_path(tree: Tree) -> Callable[[Node, bytes], os.stat_result | None]:
    """Return a function that does lstat by path: None if the entry or its directory does not exist."""

    def stat(directory: Node, name: bytes) -> os.stat_result | None:
        path = path_of(directory)
        if path is None:
            return None
        try:
            return tree.stat(b"%s/%s" % (path, name) if path else name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    return stat


def names_in(tree: Tree) -> Names:
    """Return all names in the tree. Blocks on the disk, so call it in a thread. Takes about 1 s for a million names."""
    found: Names = {}
    left = [(b"", os.fstat(tree.root_fd).st_ino)]
    while left:
        path, inode = left.pop()
        with suppress(PermissionError):  # a directory that this user may not read is not served either
            left += _take_names(tree, path, inode, found)
    return found


def _take_names(tree: Tree, path: bytes, inode: int, found: Names) -> list[tuple[bytes, int]]:
    """Add the names in one directory to ``found``; return the path and inode number of each subdirectory."""
    below = []
    fd = tree.open_directory(path)
    try:
        with os.scandir(f"/proc/self/fd/{fd}") as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                found.setdefault(entry.inode(), []).append((inode, name))
                if entry.is_dir(follow_symlinks=False):
                    below.append((path + b"/" + name if path else name, entry.inode()))
    finally:
        os.close(fd)
    return below
