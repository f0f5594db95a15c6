"""A node: one file or directory that the kernel knows by a 64-bit id, with all its known names (``node_table``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.system.file_id import FileId
from holdfast.zones import ZonePath

if TYPE_CHECKING:
    from holdfast.fs.inodes.open_file import OpenFile

ROOT_ID = 1
MOST_LEVELS = 4096
"""The limit of nested directories. Users move trees into trees, so there may be more: what is below has no path here."""


class Node:
    """One file or directory. ``backing`` is its file in the tree, or ``NO_FILE``."""

    __slots__ = (
        "_by_directory",
        "backing",
        "cache_is_stale",
        "children",
        "id",
        "is_directory",
        "lookups",
        "more_names",
        "mtime_is_told",
        "name",
        "opened",
        "parent",
        "place",
        "zone",
    )

    def __init__(self, node_id: int, parent: Node | None, name: bytes, backing: FileId, is_directory: bool) -> None:
        self.id = node_id
        self.children = 0
        self.parent = parent
        self.name = name
        self.more_names: list[tuple[Node, bytes]] | None = None
        self._by_directory: dict[Node, list[bytes]] | None = None
        self.backing = backing
        self.is_directory = is_directory
        self.lookups = 0
        self.opened: OpenFile | None = None
        self.place: tuple[int, ZonePath, int] | None = None
        """A cache of ``Directories``: the epoch in which it is valid, the place, and how many levels down that is."""
        self.zone: int = 0 if parent is None else parent.zone
        """The number of the zone that the node is in, for counts (``NodeTable``); 0 for the root and what has no name."""
        self.mtime_is_told = True
        """False for a new file until a reply after CREATE's tells the mtime; the kernel drops CREATE's when it writes."""
        self.cache_is_stale = False
        """True if the kernel may still cache pages of an earlier file of this node, or an earlier listing of this directory;
        the next open must drop them."""

    @property
    def is_named(self) -> bool:
        """True if the node has at least one name."""
        return self.parent is not None

    def names(self) -> list[tuple[Node, bytes]]:
        """Return all known names as pairs of parent and name."""
        if self.parent is None:
            return []
        if self.more_names is None:
            return [(self.parent, self.name)]
        return [(self.parent, self.name), *self.more_names]

    def names_by_directory(self) -> dict[Node, list[bytes]]:
        """Return all known names by their directories: what depends on the directory alone is then asked once for each.

        The caller must not change it. It is kept for a file with many names until ``names_changed``.
        """
        if self.parent is None:
            return {}
        if self.more_names is None:
            return {self.parent: [self.name]}
        if self._by_directory is None:
            self._by_directory = {self.parent: [self.name]}
            for parent, name in self.more_names:
                self._by_directory.setdefault(parent, []).append(name)
        return self._by_directory

    def names_changed(self) -> None:
        """Note that a name of a file with several was added or removed."""
        self._by_directory = None


def path_of(node: Node) -> bytes | None:
    """Return the node's path by its first name; None if the node or one of its parents has no name, or it is too deep."""
    parts: list[bytes] = []
    while node.parent is not None and len(parts) <= MOST_LEVELS:
        parts.append(node.name)
        node = node.parent
    return b"/".join(reversed(parts)) if node.id == ROOT_ID else None
