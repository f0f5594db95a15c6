"""Policy of names by zone and kind: whether a file is sent to the store, and whether its bytes have a digest."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.zones import LONGEST_KEY_BYTES, KindPolicy, NameKind, NameTable, ZonePath

Names = list[tuple[Node, bytes]]
"""Pairs of directory node and name."""


class NamePolicy:
    """Policy lookups by directory and name, and for all names of a node. No disk access."""

    def __init__(self, names: NameTable, directories: Directories) -> None:
        self._names = names
        self._directories = directories

    def kind_of(self, place: ZonePath, name: bytes) -> NameKind:
        """Return the kind of ``name`` in the directory at ``place``."""
        key = place.key_of(name)
        return self._names.kind_of(key) if len(key) <= LONGEST_KEY_BYTES else NameKind.REPLACEABLE  # none that is remembered

    def of(self, place: ZonePath, name: bytes) -> KindPolicy:
        """Return the policy of ``name`` in the directory at ``place``."""
        return self.kind_of(place, name).policy

    def sends(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a file at this name is, or will become, an object."""
        return place.zone.sends and not self.of(place, name).stays_here

    def created_once(self, place: ZonePath, name: bytes) -> bool:
        """Say whether a file at this name becomes an object that may be created only once."""
        return place.zone.sends and self.of(place, name).created_once

    def sent_names(self, names: Names) -> Names:
        """Return those names under which the file is, or will become, an object."""
        if len(names) == 1:  # nearly always
            return names if self.sends(self._directories.place(names[0][0]), names[0][1]) else []
        found: Names = []
        places: dict[Node, ZonePath] = {}
        for parent, name in names:
            place = places.get(parent)
            if place is None:
                place = places[parent] = self._directories.place(parent)
            if self.sends(place, name):
                found.append((parent, name))
        return found

    def has_digest(self, node: Node) -> bool:
        """Say whether the bytes of a node are checked against a digest."""
        for directory, names in node.names_by_directory().items():
            place = self._directories.place(directory)
            if place.zone.digests and (not place.zone.sends or self._leave(place, names)):
                return True
        return False

    def is_polled_while_read(self, node: Node) -> bool:
        """Say whether readers of a node ask for its attributes all the time."""
        for directory, names in node.names_by_directory().items():
            place = self._directories.place(directory)
            if place.zone.sends:
                for name in names:
                    if self.kind_of(place, name).policy.polled_while_read:
                        return True
        return False

    def _leave(self, place: ZonePath, names: Sequence[bytes]) -> bool:
        """Say whether any file at these names in the directory at ``place`` is, or will become, an object."""
        for name in names:  # noqa: SIM110 every open asks this, and a generator takes longer than what it calls
            if not self.kind_of(place, name).policy.stays_here:
                return True
        return False
