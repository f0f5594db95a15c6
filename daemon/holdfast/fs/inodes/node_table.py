"""The table of nodes: files and directories that the kernel knows by a 64-bit id.

A node is a file or directory that the kernel holds references to, with all its known names. Its id is the inode number of
its backing file, unless that number is taken. So ids, which users see as inode numbers, survive restarts. A node without a
backing file (it exists only in the store) has an id derived from its path.

Invariants:
- a hard-linked file is one node with several names; no two live nodes have the same ``backing``;
- ``_by_path`` holds exactly the named nodes without a backing file;
- a node leaves the table exactly once: when its lookup count is zero, it is not open, and no node in the table has a name
  in it. So a directory that the kernel has forgotten stays the same node while a file in it is still known;
- ``children`` of a directory is the number of names in it that belong to nodes in the table.

The table belongs to the event loop; every change is made between two awaits.

Ids outlive the daemon, because the kernel keeps using them. An id that is an inode number is recovered from the tree; all
others are recorded. The kernel's reference counts are not recorded: see ``forget``.
"""

from __future__ import annotations

import itertools
import logging
import stat as stat_module
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from holdfast.digest import position_of
from holdfast.errors import SessionFullError, StaleNodeError
from holdfast.fs.inodes.node import ROOT_ID, Node, path_of
from holdfast.session import NodeRecord, SessionRecords
from holdfast.system.file_id import NO_FILE, FileId

if TYPE_CHECKING:
    from holdfast.fs.inodes.node_recovery import NodeRecovery
    from holdfast.fs.inodes.pending_unlinks import RecentInodes

_log = logging.getLogger("holdfast.fs")
_REMOTE_RANGE = 1 << 62
_SPARE_RANGE = 3 << 61
_SPARE_IDS = 1 << 32  # per run


class NodeTable:
    """All nodes that the kernel knows. ``left`` is called with each node that leaves the table.

    Ids that are not in the table are looked up in ``earlier``. New nodes never get an id in ``reserved``: the kernel may
    still use it for a removed file. ``run`` numbers the daemons of a mount, so that no two of them generate the same id.
    ``zones`` has the number of each directory in the root, by which nodes are counted.
    """

    def __init__(
        self,
        root_inode: FileId,
        run: int,
        *,
        records: SessionRecords,
        reserved: RecentInodes,
        earlier: NodeRecovery,
        left: Callable[[Node], None],
        zones: Mapping[bytes, int],
    ) -> None:
        self.root = Node(ROOT_ID, None, b"", root_inode, True)
        self.root.lookups = 1
        self.root.cache_is_stale = True  # zones may have come and gone since an earlier daemon
        self._nodes: dict[int, Node] = {ROOT_ID: self.root}
        self.known = self._nodes.get
        """Return the node with this id if it is in the table. It is the dictionary's own method: each request calls it."""
        self._zones = zones
        self.moved: dict[FileId, int] = {root_inode: ROOT_ID}
        """The id of each node whose id is not the inode number of its backing file, by that number."""
        self._by_path: dict[bytes, Node] = {}
        self.of_path = self._by_path.get
        """Return the node without a backing file at this path, if there is one."""
        self._awaited_count = sys.maxsize
        self._has_more = trio.Event()
        self._spare = itertools.count(_SPARE_RANGE + run * _SPARE_IDS)
        self._left = left
        self._records = records
        self._drop_record = records.drop
        self._reserved = reserved
        self._earlier = earlier

    def all(self) -> list[Node]:
        """Return all nodes."""
        return list(self._nodes.values())

    def oldest(self, count: int) -> list[Node]:
        """Return so many nodes, those that were made or returned here longest ago."""
        nodes = list(itertools.islice(self._nodes.values(), count))
        for node in nodes:
            del self._nodes[node.id]
            self._nodes[node.id] = node
        return nodes

    def __len__(self) -> int:
        return len(self._nodes)

    async def wait_above(self, count: int) -> None:
        """Return when there are more than ``count`` nodes, of which some were made by this daemon. One task may wait."""
        self._awaited_count, self._has_more = count, trio.Event()
        try:
            if len(self._nodes) <= count:
                await self._has_more.wait()
        finally:
            self._awaited_count = sys.maxsize

    def get(self, node_id: int) -> Node:
        """Return the node with this id. Raises ``StaleNodeError`` if the kernel never got it.

        The kernel holds a reference while it waits for a reply, even if this daemon has not counted it. So the node stays.
        """
        node = self._nodes.get(node_id) or self._earlier.find(self, node_id)
        if node is None:
            raise StaleNodeError(f"there is no node {node_id}")
        node.lookups = node.lookups or 1
        return node

    def of_backing(self, inode: FileId) -> Node | None:
        """Return the node of the backing file ``inode``, if there is one."""
        node = self._nodes.get(self.moved.get(inode, inode))
        return node if node is not None and node.backing == inode else None

    def recall(self, inode: FileId) -> None:
        """Make the node of the backing file ``inode`` if only an earlier daemon knew it."""
        if self.of_backing(inode) is None:
            self._earlier.find(self, self.id_of(inode))

    def keep_nameless(self, node: Node) -> None:
        """Record what was removed and is still in use, as a process's current directory is: nothing else may get its id."""
        with suppress(SessionFullError):
            self._keep(node)

    def _keep(self, node: Node) -> None:
        """Write or update the record of a node."""
        parent, name = (node.parent.id, node.name) if node.parent is not None else (0, b"")
        self._records.keep(node.id, NodeRecord(node.backing, node.is_directory, parent, name))

    def id_of(self, inode: FileId) -> int:
        """Return the id of the backing file ``inode``, from the table or from an earlier daemon."""
        return self.moved.get(inode, inode)

    def begin(self, inode: FileId) -> None:
        """Make a new file's number free: a node of an older file with the same number loses its names and the file.

        If the kernel still has the older one, by an id of an earlier daemon's, the new file gets another id.
        """
        node = self.of_backing(inode)
        if node is None and self._earlier.is_loaded and inode not in self._nodes and self._earlier.holds(inode):
            self.keep_nameless(self.inherit(inode, NO_FILE, False, []))
        if node is not None:
            _log.error("the file of node %d is gone, and the node was not told", node.id)
            for parent, name in node.names():
                self.drop_name(node, parent, name)
            self.unbind(node)

    def local(self, parent: Node, name: bytes, inode: FileId, mode: int) -> Node:
        """Return the node of a file in the tree, and add this name to it."""
        node = self.of_backing(inode)
        if node is None:
            is_reserved = inode in self._reserved.candidates and inode in self._reserved
            is_free = inode not in self._nodes and not is_reserved
            node_id = inode if is_free else next(self._spare)
            node = self._nodes[node_id] = Node(node_id, parent, name, inode, stat_module.S_ISDIR(mode))
            self._entered(node, parent, name)
            if node_id != inode:
                self.moved[inode] = node.id
                self._keep(node)
            if self._earlier.is_loaded:
                self._earlier.node_made(self, node)
        else:
            self.add_name(node, parent, name)
        return node

    def _entered(self, node: Node, parent: Node, name: bytes) -> None:
        """Note that a new node with this name is in the table."""
        if parent is self.root:
            node.zone = self._zones.get(name, 0)
        parent.children += 1
        if len(self._nodes) > self._awaited_count:
            self._has_more.set()

    def remote(self, parent: Node, name: bytes, path: bytes, is_directory: bool) -> Node:
        """Return the node of an entry that exists only in the store."""
        node = self._by_path.get(path)
        if node is None or node.is_directory != is_directory:
            node_id = _id_from(path)
            if node_id in self._nodes:
                node_id = next(self._spare)
            node = self._nodes[node_id] = self._by_path[path] = Node(node_id, parent, name, NO_FILE, is_directory)
            self._entered(node, parent, name)
            self._keep(node)
        return node

    def inherit(self, node_id: int, backing: FileId, is_directory: bool, names: list[tuple[Node, bytes]]) -> Node:
        """Return a new node with an id from an earlier daemon. It counts one kernel reference; there may be more.

        The earlier daemon may have died before it made the kernel drop pages.
        """
        parent, name = names[0] if names else (None, b"")
        node = self._nodes[node_id] = Node(node_id, parent, name, backing, is_directory)
        if parent is self.root:
            node.zone = self._zones.get(name, 0)
        node.more_names = names[1:] or None
        node.lookups = 1
        node.cache_is_stale = True
        for directory, _ in names:
            directory.children += 1
        if backing and backing != node_id:
            self.moved[backing] = node_id
        path = path_of(node) if names and not backing else None
        if path is not None:
            self._by_path[path] = node
        return node

    def remote_id(self, path: bytes) -> int:
        """Return the id of an entry that exists only in the store, or its likely id if it has no node yet."""
        node = self._by_path.get(path)
        return node.id if node is not None else _id_from(path)

    def bind(self, node: Node, path: bytes, inode: FileId) -> None:
        """Attach the backing file ``inode``, which now exists at ``path``, to a node without one."""
        if self._by_path.get(path) is node:
            del self._by_path[path]
        node.backing = inode
        node.cache_is_stale = node.opened is None or node.opened.inode != inode
        if node.id != inode:
            self.moved[inode] = node.id
            self._keep(node)
        else:
            self._drop_record(node.id)

    def unbind(self, node: Node) -> None:
        """Detach a node's backing file."""
        if self.moved.get(node.backing) == node.id:
            del self.moved[node.backing]
        node.backing = NO_FILE
        self._drop_record(node.id)

    def to_path(self, node: Node, path: bytes) -> None:
        """Register a named node that has lost its file under ``path``: it now exists only in the store."""
        self._by_path[path] = node
        self._keep(node)

    def add_name(self, node: Node, parent: Node, name: bytes) -> None:
        """Add a name to a node. Does nothing if the node has it."""
        if (node.parent is parent and node.name == name) or (node.more_names and (parent, name) in node.more_names):
            return
        parent.children += 1
        if node.parent is None:
            node.parent, node.name, node.zone = parent, name, parent.zone
        elif node.more_names is None:
            node.more_names = [(parent, name)]
        else:
            node.more_names.append((parent, name))
            node.names_changed()

    def drop_name(self, node: Node, parent: Node, name: bytes) -> None:
        """Remove a name from a node. Without the last one, the node is nameless."""
        others = node.more_names
        if node.parent is parent and node.name == name:
            if others:
                node.parent, node.name = others.pop()
                node.zone = node.parent.zone
            else:
                node.parent = None
        elif others and (parent, name) in others:
            others.remove((parent, name))
        else:
            return
        if others is not None:
            node.more_names = others or None
            node.names_changed()
        node.place = None
        self._abandoned(parent)

    def drop_path(self, path: bytes) -> Node | None:
        """Remove the name of the node without a backing file at ``path``; return the node."""
        node = self._by_path.pop(path, None)
        if node is not None and node.parent is not None:
            parent, node.parent = node.parent, None
            self._drop_record(node.id)
            self._abandoned(parent)
        return node

    def forget(self, node_id: int, lookups: int) -> Node | None:
        """Drop ``lookups`` kernel references, which may include those counted by an earlier daemon.

        Returns the node if that was the last one although the node is open.
        """
        node = self._nodes.get(node_id)
        if node is None:
            self._reserved.discard(node_id)
            return None
        node.lookups = max(0, node.lookups - lookups)
        self.release(node)
        return node if node.opened is not None and not node.lookups else None

    def hold(self, node: Node) -> None:
        """Keep a node in the table across awaits, whatever the kernel forgets; end with ``let_go``."""
        node.lookups += 1

    def let_go(self, node: Node) -> None:
        """End ``hold``."""
        node.lookups = max(0, node.lookups - 1)
        self.release(node)

    def release(self, node: Node) -> None:
        """Remove the node from the table if nothing refers to it, then its parents likewise, however many there are."""
        if node.lookups or node.children:  # nearly always
            return
        unused = [node]
        while unused:
            node = unused.pop()
            if self._is_unused(node):
                self._remove(node)
                for parent, _ in node.names():
                    parent.children -= 1
                    unused.append(parent)

    def _is_unused(self, node: Node) -> bool:
        if node.lookups > 0 or node.children or node.opened is not None or node is self.root:
            return False
        return self._nodes.get(node.id) is node

    def _remove(self, node: Node) -> None:
        del self._nodes[node.id]
        self._drop_record(node.id)
        if self.moved.get(node.backing) == node.id:
            del self.moved[node.backing]
        path = path_of(node)
        if path is not None and self._by_path.get(path) is node:
            del self._by_path[path]
        if self._earlier.is_loaded:
            self._earlier.node_left(node)
        self._left(node)

    def _abandoned(self, directory: Node) -> None:
        """Note that a name in ``directory`` no longer belongs to a node in the table."""
        directory.children -= 1
        self.release(directory)


def _id_from(path: bytes) -> int:
    return _REMOTE_RANGE | position_of(path) >> 2
