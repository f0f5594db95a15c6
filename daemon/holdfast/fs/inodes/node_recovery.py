"""Recovery of the nodes that the kernel knows from an earlier daemon.

Most ids are inode numbers. A walk of the tree at the start, which reads only directory entries, finds the names of each that
the kernel has, and the node is made when the kernel first uses the id. Where the kernel does not have a directory, it has
nothing in it either: the walk leaves that out, and takes no more time and memory than the kernel's own cache. All other ids
come from the session records, and their nodes are made at once. A name from the walk may have been moved since, so it is
checked by lstat before it is used.

The kernel's reference counts are not known. So a node may leave the table too early, mostly when an inode number is reused
and the kernel forgets the earlier file late. The names of each leaving node are kept so that it can be found again.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from holdfast.fs.inodes.node import Node, path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.session import NodeRecord, SessionRecords
from holdfast.store import Tree
from holdfast.system.file_id import NO_FILE, FileId, FileStat, file_stat

Names = dict[FileId, list[tuple[FileId, bytes]]]
"""The names of each inode number, each as a pair of the directory's inode number and the name."""


class NodeRecovery:
    """The nodes that the kernel may know from an earlier daemon: none until ``load``, which is called only on a takeover."""

    def __init__(
        self,
        records: SessionRecords,
        orphan_inodes: Callable[[], Collection[FileId]],
        stat: Callable[[Node, bytes], FileStat | None],
        is_in_kernel: Callable[[int], bool],
    ) -> None:
        self._session_records = records
        self._orphan_inodes = orphan_inodes
        self._stat = stat
        self._is_in_kernel = is_in_kernel
        self.is_loaded = False
        """True after a takeover. Without one, ``holds``, ``node_left`` and ``node_made`` need not be called."""
        self._names: Names = {}
        self._records: dict[int, NodeRecord] = {}
        self._ids: dict[FileId, int] = {}

    def names_in(self, tree: Tree, in_use: Collection[int]) -> Names:
        """Return all names in the tree of what the kernel has, and of the ids ``in_use``, which it may have forgotten.

        Blocks on the disk: call it in a thread.
        """
        ids = {record.backing: node_id for node_id, record in self._session_records.nodes()}

        def is_wanted(inode: FileId) -> bool:
            node_id = ids.get(inode, inode)
            return node_id in in_use or self._is_in_kernel(node_id)

        is_everywhere = not all(self._is_in_kernel(node_id) for node_id in in_use)
        return names_in(tree, is_wanted, is_everywhere=is_everywhere)

    def load(self, table: NodeTable, names: Names, in_use: Collection[int] = ()) -> None:
        """Take the names that a walk of the tree found, and make the nodes in the session records.

        What the kernel has forgotten is not made, except for the ids ``in_use``.
        """
        self.is_loaded = True
        self._names = names
        self._records = dict(self._session_records.nodes())
        self._ids = {record.backing: node_id for node_id, record in self._records.items() if record.backing}
        for node_id in [each for each in self._records if each not in in_use and not self._is_in_kernel(each)]:
            self._session_records.drop(node_id)  # the earlier daemon died before it was told
            self._ids.pop(self._records.pop(node_id).backing, None)
        for node_id in list(self._records):
            if table.known(node_id) is None and self.find(table, node_id) is None:
                self._session_records.drop(node_id)
        self._ids.clear()

    def holds(self, node_id: int) -> bool:
        """Say whether the kernel has a node with this id, which is not in the table."""
        return self.is_loaded and self._is_in_kernel(node_id)

    def node_left(self, node: Node) -> None:
        """Remember the current names of a node that leaves the table."""
        if self.is_loaded and node.id == node.backing:
            self._names[node.backing] = [(parent.backing, name) for parent, name in node.names()]

    def node_made(self, table: NodeTable, node: Node) -> None:
        """Add what the kernel may have of a node that was made for one of its names: other names, and pages."""
        names = self._names.get(node.backing, ()) if self.is_loaded else ()
        node.cache_is_stale = bool(names)
        if len(names) > 1:
            for parent, name in self._still(table, node.backing):
                table.add_name(node, parent, name)

    def find(self, table: NodeTable, node_id: int) -> Node | None:
        """Return the node that the kernel knows by this id; None if it no longer exists.

        The directories above it are found first, the topmost before the others.
        """
        if not self.is_loaded:
            return None
        left, seen = [node_id], {node_id}
        while True:
            above = [other for other in self._above(left[-1]) if other not in seen and table.known(other) is None]
            left += above
            seen.update(above)
            if not above:
                found = self._find(table, left.pop())
                if not left:
                    return found

    def _above(self, node_id: int) -> list[int]:
        """Return the ids of the directories that may hold the node."""
        record = self._records.get(node_id)
        if record is not None and not record.backing:
            return [record.parent] if record.name else []
        inode = record.backing if record is not None else FileId(node_id)
        return [self._ids.get(directory, directory) for directory, _ in self._names.get(inode, ())]

    def _find(self, table: NodeTable, node_id: int) -> Node | None:
        """Return the node, if those above it are in the table."""
        record = self._records.pop(node_id, None)
        if record is not None:
            return self._written_down(table, node_id, record)
        inode = FileId(node_id)  # the node of a file without a record has the file's own id
        if inode in self._ids or table.of_backing(inode) is not None:
            return None  # a file with another id
        return self._with_file(table, node_id, inode)

    def _written_down(self, table: NodeTable, node_id: int, record: NodeRecord) -> Node | None:
        if record.backing:
            return self._with_file(table, node_id, record.backing)
        if not record.name:
            return table.inherit(node_id, NO_FILE, record.is_directory, [])  # a directory that was removed
        parent = table.known(record.parent)
        return table.inherit(node_id, NO_FILE, record.is_directory, [(parent, record.name)]) if parent else None

    def _with_file(self, table: NodeTable, node_id: int, inode: FileId) -> Node | None:
        names = self._still(table, inode)
        if not names:
            is_orphan = inode in self._orphan_inodes()
            return table.inherit(node_id, inode, False, []) if is_orphan else None
        stat = self._stat(*names[0])
        is_directory = stat is not None and stat_module.S_ISDIR(stat.st_mode)
        return table.inherit(node_id, inode, is_directory, names)

    def _still(self, table: NodeTable, inode: FileId) -> list[tuple[Node, bytes]]:
        """Return those of the remembered names that still lead to ``inode``."""
        names = []
        for directory_inode, name in self._names.get(inode, ()):
            parent = self._directory(table, directory_inode)
            stat = self._stat(parent, name) if parent is not None else None
            if parent is not None and stat is not None and stat.st_ino == inode:
                names.append((parent, name))
        return names

    def _directory(self, table: NodeTable, inode: FileId) -> Node | None:
        """Return the directory with this inode number; None if it is gone, even if a file has the number now."""
        node = table.of_backing(inode) or table.known(self._ids.get(inode, inode))
        return node if node is not None and node.is_directory else None


@dataclass(eq=False)
class StatsInTree:
    """Lstats names in the tree, by directory node. Keeps the last directory open: nodes are found from the top down."""

    _tree: Tree
    _last: tuple[Node, int] | None = field(init=False, default=None)

    def __call__(self, directory: Node, name: bytes) -> FileStat | None:
        """Return the lstat of ``name``; None if the entry or its directory does not exist."""
        try:
            return file_stat(name, dir_fd=self._descriptor(directory), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _descriptor(self, directory: Node) -> int:
        """Return the descriptor of a directory, which is valid until the next call."""
        before, self._last = self._last, None
        if before is not None and before[0] is directory and os.fstat(before[1]).st_nlink:
            self._last = before
            return before[1]
        try:
            if before is not None and before[0] is directory.parent:
                fd = self._tree.open_child(before[1], directory.name)
            else:
                fd = self._open(directory)
        finally:
            if before is not None:
                os.close(before[1])
        self._last = directory, fd
        return fd

    def _open(self, directory: Node) -> int:
        path = path_of(directory)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._tree.open_directory(path)


def names_in(tree: Tree, is_wanted: Callable[[FileId], bool], *, is_everywhere: bool) -> Names:
    """Return the names of all wanted inode numbers; unless they are everywhere, only in directories that are wanted too.

    Takes 1 µs for each name in these directories, and 1 for each that is wanted.
    """
    found: Names = {}
    for _, fd, entries in tree.descend(tree.root_fd, enters=lambda entry: is_everywhere or is_wanted(entry.inode)):
        directory = file_stat(fd).st_ino
        for entry in entries:
            if is_wanted(entry.inode) or (is_everywhere and entry.is_directory):
                found.setdefault(entry.inode, []).append((directory, entry.name))
    return found
