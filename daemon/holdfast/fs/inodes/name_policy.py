"""What the zone and the kind of a name say about it: whether it is sent, and whether its bytes are held against a digest."""

from __future__ import annotations

from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.nodes import Node
from holdfast.zones import KindPolicy, NameKind, NameTable, ZonePath

Names = list[tuple[Node, bytes]]
"""Names, each as the node of its directory and the name in it."""


class NamePolicy:
    """Answers by directory and name, and for all names of a node. It touches no disk."""

    def __init__(self, names: NameTable, directories: Directories) -> None:
        self._names = names
        self._directories = directories

    def kind_of(self, place: ZonePath, name: bytes) -> NameKind:
        """Return the kind of the name ``name`` in the directory at ``place``."""
        return self._names.kind_of(place.key_of(name))

    def of(self, place: ZonePath, name: bytes) -> KindPolicy:
        """Return the policy of the name ``name`` in the directory at ``place``."""
        return self.kind_of(place, name).policy

    def sends(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a file at this name is, or becomes, an object."""
        return place.zone.sends and not self.of(place, name).stays_here

    def created_once(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a file at this name becomes an object that may be created only once."""
        return place.zone.sends and self.of(place, name).created_once

    def sent_names(self, names: Names) -> Names:
        """Return those names under which a file is, or becomes, an object."""
        return [(parent, name) for parent, name in names if self.sends(self._directories.place(parent), name)]

    def has_digest(self, node: Node) -> bool:
        """Say whether the bytes of a node are held against a digest."""
        for parent, name in node.names():
            place = self._directories.place(parent)
            if place.zone.digests and not (place.zone.sends and self.of(place, name).stays_here):
                return True
        return False
