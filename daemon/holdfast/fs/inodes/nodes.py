"""Nodes: what the kernel knows by a 64-bit id.

A node is a file or directory that the kernel holds references to, with all the names it is known by. Its id is the inode
number of its backing file, as long as that number is not taken: so ids, which users see as inode numbers, stay the same
over restarts. A node without a backing file (it exists only in the store) has an id made from its path.

Invariants:
- a hard-linked file is one node with several names; ``backing`` of two living nodes is never the same;
- ``by path`` holds exactly the named nodes without a backing file;
- a node leaves the table when its lookup count is zero, nobody has it open and no node of the table has a name in it,
  exactly once. So a directory that the kernel has forgotten, but not a hard link in it, stays one and the same node;
- ``children`` of a directory is the number of names in it that nodes of the table have.

All of it lives on the event loop and changes between two awaits.

Ids outlive the daemon, for the kernel goes on using them. One that is a file's inode number is found again by the tree;
what the others stand for is written down (``NodeKeeper``). How many references the kernel holds is not: see ``forget``.
"""

from __future__ import annotations

import itertools
import stat as stat_module
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.digest import position_of
from holdfast.errors import StaleNodeError
from holdfast.zones import ZonePath

if TYPE_CHECKING:
    from holdfast.fs.inodes.open_file import OpenFile

ROOT_ID = 1
_REMOTE_RANGE = 1 << 62
_SPARE_RANGE = 3 << 61
_SPARE_IDS = 1 << 32  # for each run


class Node:
    """One file or directory. ``backing`` is the inode number of its file in the tree, 0 while it has none."""

    __slots__ = (
        "backing",
        "cache_is_stale",
        "children",
        "id",
        "is_directory",
        "lookups",
        "more_names",
        "name",
        "opened",
        "parent",
        "place",
    )

    def __init__(self, node_id: int, parent: Node | None, name: bytes, backing: int, is_directory: bool) -> None:
        self.id = node_id
        self.children = 0
        self.parent = parent
        self.name = name
        self.more_names: list[tuple[Node, bytes]] | None = None
        self.backing = backing
        self.is_directory = is_directory
        self.lookups = 0
        self.opened: OpenFile | None = None
        self.place: tuple[int, ZonePath] | None = None
        self.cache_is_stale = False
        """The kernel may hold pages of an older file of this node: the next open must drop them."""

    @property
    def is_named(self) -> bool:
        """Whether any name still leads here."""
        return self.parent is not None

    def names(self) -> list[tuple[Node, bytes]]:
        """Return all known names as pairs of parent and name."""
        if self.parent is None:
            return []
        return [(self.parent, self.name), *(self.more_names or ())]


def _nobody_cares(node: Node) -> None:
    del node


class NodeKeeper(Protocol):
    """Writes down what those ids stand for that are no inode numbers."""

    def keep(self, node: Node) -> None:
        """Write down, or write anew, what the node's id stands for."""

    def drop(self, node_id: int) -> None:
        """Forget the id, if it is written down."""


class Reserved(Protocol):
    """Ids that are in no table, and that the kernel may still use for what is gone."""

    def __contains__(self, node_id: int, /) -> bool: ...

    def discard(self, node_id: int, /) -> None:
        """The kernel has let go of the id."""


class EarlierNodes(Protocol):
    """What the kernel may know from an earlier daemon of this mount (``node_recovery``)."""

    def find(self, table: NodeTable, node_id: int) -> Node | None:
        """Return the node that the kernel knows by an id that is not in the table; None when it is no more."""

    def came(self, table: NodeTable, node: Node) -> None:
        """A node was made for a file, by one of its names: the kernel may know it by others too."""

    def left(self, node: Node) -> None:
        """A node has left the table."""


class NoEarlierNodes:
    """There was no earlier daemon."""

    def find(self, table: NodeTable, node_id: int) -> Node | None:
        """Find nothing."""

    def came(self, table: NodeTable, node: Node) -> None:
        """Know nothing more of it."""

    def left(self, node: Node) -> None:
        """Remember nothing."""


class NodeTable:
    """All nodes that the kernel knows. ``left`` is called with each node that leaves the table.

    ``earlier`` is asked for the node of an id that is not in the table. What is new gets none of the ids that are
    ``reserved``. ``run`` numbers the daemons of a mount: no two of them may make up the same id.
    """

    def __init__(
        self,
        root_inode: int,
        run: int = 0,
        *,
        keeper: NodeKeeper | None = None,
        reserved: Reserved | None = None,
        earlier: EarlierNodes | None = None,
        left: Callable[[Node], None] = _nobody_cares,
    ) -> None:
        self.root = Node(ROOT_ID, None, b"", root_inode, True)
        self.root.lookups = 1
        self._nodes: dict[int, Node] = {ROOT_ID: self.root}
        self.moved = {root_inode: ROOT_ID}
        """The ids, by inode number of the backing file, of nodes whose id is another number."""
        self._by_path: dict[bytes, Node] = {}
        self._spare = itertools.count(_SPARE_RANGE + run * _SPARE_IDS)
        self._left = left
        self._keeper: NodeKeeper = keeper or _NothingKept()
        self._reserved: Reserved = set() if reserved is None else reserved
        self._earlier: EarlierNodes = earlier or NoEarlierNodes()

    def all(self) -> list[Node]:
        """Return all nodes."""
        return list(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, node_id: int) -> Node:
        """Return the node that the kernel means by ``node_id``. Raises ``StaleNodeError`` when it was never told of it.

        While it waits for an answer it holds a reference, whether this daemon has counted it or not; so the node stays.
        """
        node = self._nodes.get(node_id) or self._earlier.find(self, node_id)
        if node is None:
            raise StaleNodeError(f"there is no node {node_id}")
        node.lookups = node.lookups or 1
        return node

    def known(self, node_id: int) -> Node | None:
        """Return the node with this id if it is in the table."""
        return self._nodes.get(node_id)

    def of_backing(self, inode: int) -> Node | None:
        """Return the node of the backing file ``inode``, if there is one."""
        node = self._nodes.get(self.id_of(inode))
        return node if node is not None and node.backing == inode else None

    def id_of(self, inode: int) -> int:
        """Return the id of the backing file ``inode``, in the table or from an earlier daemon."""
        return self.moved.get(inode, inode)

    def of_path(self, path: bytes) -> Node | None:
        """Return the node without a backing file at ``path``, if there is one."""
        return self._by_path.get(path)

    def local(self, parent: Node, name: bytes, inode: int, mode: int) -> Node:
        """Return the node of a file in the tree, under this name from now on."""
        node = self.of_backing(inode)
        if node is None:
            is_free = inode not in self._nodes and inode not in self._reserved
            node_id = inode if is_free else next(self._spare)
            node = self._nodes[node_id] = Node(node_id, parent, name, inode, stat_module.S_ISDIR(mode))
            parent.children += 1
            if node_id != inode:
                self.moved[inode] = node.id
                self._keeper.keep(node)
            self._earlier.came(self, node)
        else:
            self.add_name(node, parent, name)
        return node

    def remote(self, parent: Node, name: bytes, path: bytes, is_directory: bool) -> Node:
        """Return the node of something that exists only in the store."""
        node = self._by_path.get(path)
        if node is None or node.is_directory != is_directory:
            node_id = _id_from(path)
            if node_id in self._nodes:
                node_id = next(self._spare)
            node = self._nodes[node_id] = self._by_path[path] = Node(node_id, parent, name, 0, is_directory)
            parent.children += 1
            self._keeper.keep(node)
        return node

    def inherit(self, node_id: int, backing: int, is_directory: bool, names: list[tuple[Node, bytes]]) -> Node:
        """Return a new node with the id that an earlier daemon gave it. The kernel holds at least one reference."""
        parent, name = names[0] if names else (None, b"")
        node = self._nodes[node_id] = Node(node_id, parent, name, backing, is_directory)
        node.more_names = names[1:] or None
        node.lookups = 1
        for directory, _ in names:
            directory.children += 1
        if backing and backing != node_id:
            self.moved[backing] = node_id
        path = path_of(node) if names and not backing else None
        if path is not None:
            self._by_path[path] = node
        return node

    def remote_id(self, path: bytes) -> int:
        """Return the id that something at ``path`` that exists only in the store has, or is likely to get."""
        node = self._by_path.get(path)
        return node.id if node is not None else _id_from(path)

    def bind(self, node: Node, path: bytes, inode: int) -> None:
        """Give a node without a backing file the file that now stands at its path."""
        if self._by_path.get(path) is node:
            del self._by_path[path]
        node.backing = inode
        node.cache_is_stale = True
        if node.id != inode:
            self.moved[inode] = node.id
            self._keeper.keep(node)
        else:
            self._keeper.drop(node.id)

    def unbind(self, node: Node) -> None:
        """Take a node's backing file away."""
        if self.moved.get(node.backing) == node.id:
            del self.moved[node.backing]
        node.backing = 0
        self._keeper.drop(node.id)

    def to_path(self, node: Node, path: bytes) -> None:
        """A named node whose file was taken away exists only in the store now, at ``path``."""
        self._by_path[path] = node
        self._keeper.keep(node)

    def add_name(self, node: Node, parent: Node, name: bytes) -> None:
        """Add a name to a node, unless it has it."""
        if (node.parent is parent and node.name == name) or (node.more_names and (parent, name) in node.more_names):
            return
        parent.children += 1
        if node.parent is None:
            node.parent, node.name = parent, name
        elif node.more_names is None:
            node.more_names = [(parent, name)]
        else:
            node.more_names.append((parent, name))

    def drop_name(self, node: Node, parent: Node, name: bytes) -> None:
        """Take a name away from a node; the last one leaves it nameless."""
        others = node.more_names
        if node.parent is parent and node.name == name:
            if others:
                node.parent, node.name = others.pop()
            else:
                node.parent = None
        elif others and (parent, name) in others:
            others.remove((parent, name))
        else:
            return
        if not others:
            node.more_names = None
        node.place = None
        self._abandoned(parent)

    def drop_path(self, path: bytes) -> Node | None:
        """Make the node without a backing file at ``path`` nameless; return it."""
        node = self._by_path.pop(path, None)
        if node is not None and node.parent is not None:
            parent, node.parent = node.parent, None
            self._keeper.drop(node.id)
            self._abandoned(parent)
        return node

    def forget(self, node_id: int, lookups: int) -> None:
        """The kernel drops ``lookups`` references, those that an earlier daemon gave it among them."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.lookups = max(0, node.lookups - lookups)
            self.release(node)
        else:
            self._reserved.discard(node_id)

    def release(self, node: Node) -> None:
        """Let the node leave the table if nothing refers to it any more, and so the directories above it."""
        if node.lookups > 0 or node.children or node.opened is not None or node is self.root:
            return
        if self._nodes.get(node.id) is not node:
            return
        del self._nodes[node.id]
        self._keeper.drop(node.id)
        if self.moved.get(node.backing) == node.id:
            del self.moved[node.backing]
        path = path_of(node)
        if path is not None and self._by_path.get(path) is node:
            del self._by_path[path]
        self._earlier.left(node)
        self._left(node)
        for parent, _ in node.names():
            self._abandoned(parent)

    def _abandoned(self, directory: Node) -> None:
        """One name less leads from ``directory`` to a node of the table."""
        directory.children -= 1
        self.release(directory)


def _id_from(path: bytes) -> int:
    return _REMOTE_RANGE | position_of(path) >> 2


class _NothingKept:
    """Keeps nothing: no later daemon will ask."""

    def keep(self, node: Node) -> None:
        """Do nothing."""

    def drop(self, node_id: int) -> None:
        """Do nothing."""


def path_of(node: Node) -> bytes | None:
    """Return the node's path in the tree by its first name; None when it, or a directory above it, has no name."""
    parts = []
    while node.parent is not None:
        parts.append(node.name)
        node = node.parent
    return b"/".join(reversed(parts)) if node.id == ROOT_ID else None
