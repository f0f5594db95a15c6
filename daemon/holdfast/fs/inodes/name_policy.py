"""Names with their policies, which follow from zone and kind: whether a file is sent, what has a digest, what is refused."""

from __future__ import annotations

import stat as stat_module
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import ZoneNotPermittedError, ZoneRootBusyError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.zones import NameTable, Zone, ZoneKind, ZoneMap, ZoneName, ZonePath

Names = list[tuple[Node, bytes]]
"""Pairs of directory node and name."""


class Name(ZoneName):
    """The entry ``name`` of ``directory``. A request makes one of each of its names, and hands it on."""

    __slots__ = ("directory",)
    directory: Node


@dataclass(eq=False)
class NamePolicy:
    """Resolves names, and answers for all names of a node. No disk access."""

    _names: NameTable
    _zones: ZoneMap
    _directories: Directories

    def name(self, directory: Node, name: bytes) -> Name:
        """Resolve the name of an entry. Raises ``NoSuchEntryError`` if the directory was removed."""
        resolved = Name(self._directories.place(directory), name, self._names)
        resolved.directory = directory
        return resolved

    def at(self, place: ZonePath, name: bytes) -> ZoneName:
        """Resolve a name in the directory at ``place``."""
        return ZoneName(place, name, self._names)

    def of_path(self, path: bytes) -> ZoneName | None:
        """Resolve a path of the tree; None if it is in no zone, as where its store is not configured."""
        parent, _, name = path.rpartition(b"/")
        place = self._zones.place_of(parent)
        return None if place is None else ZoneName(place, name, self._names)

    def sent_names(self, names: Names) -> list[Name]:
        """Resolve those names under which the file is, or will become, an object."""
        found: list[Name] = []
        places: dict[Node, ZonePath] = {}
        for directory, name in names:
            place = places.get(directory)
            if place is None:
                place = places[directory] = self._directories.place(directory)
            if place.zone.sends and (resolved := Name(place, name, self._names)).sends:
                resolved.directory = directory
                found.append(resolved)
        return found

    def has_digest(self, node: Node) -> bool:
        """Say whether the bytes of a node are checked against a digest."""
        for directory, names in node.names_by_directory().items():
            place = self._directories.place(directory)
            if place.zone.digests and (not place.zone.sends or self._any_sent(place, names)):
                return True
        return False

    def is_polled_while_read(self, node: Node) -> bool:
        """Say whether readers of a node ask for its attributes all the time."""
        for directory, names in node.names_by_directory().items():
            place = self._directories.place(directory)
            if place.zone.sends and self._any_polled(place, names):
                return True
        return False

    # every open asks these two, and a generator takes longer than what it calls

    def _any_polled(self, place: ZonePath, names: Sequence[bytes]) -> bool:
        for name in names:  # noqa: SIM110
            if ZoneName(place, name, self._names).policy.polled_while_read:
                return True
        return False

    def _any_sent(self, place: ZonePath, names: Sequence[bytes]) -> bool:
        """Say whether any file at these names in the directory at ``place`` is, or will become, an object."""
        for name in names:  # noqa: SIM110
            if ZoneName(place, name, self._names).sends:
                return True
        return False


def check_not_root(*names: Name) -> None:
    """Raise ``ZoneRootBusyError`` if one of the names is in the root of the mount, whose entries are the zones."""
    for name in names:
        if name.zone.kind is ZoneKind.ROOT:
            raise ZoneRootBusyError("the zones of the mount can't be renamed")


def check_storable(zone: Zone, mode: int) -> None:
    """Raise ``ZoneNotPermittedError`` if an entry of this file type may not come into a zone.

    A link or special file may not come into a zone that sends even under a temporary name: the directory may lose that name.
    """
    if zone.sends and not (stat_module.S_ISREG(mode) or stat_module.S_ISDIR(mode)):
        raise ZoneNotPermittedError("object stores can't keep symbolic links and special files")
