"""The directories of partitions in the zones of stores: each is on one of a store's disks with all that is in it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints.formats import Formats
from holdfast.zones import LONGEST_KEY_BYTES, ZoneMap

_MOST_LEVELS = 16
"""The levels of such a directory in its store. Whoever makes deeper ones has them on the first disk."""


@dataclass(frozen=True, slots=True)
class PartitionDirectories:
    """Those of checkpoints in zones that send what is written to a store. Paths are those of the tree."""

    zones: ZoneMap
    formats: Formats

    def above(self, path: bytes) -> bytes | None:
        """Return the path of the partition's directory that ``path`` is, or lies in; None if it is none of one."""
        top, _, key = path.partition(b"/")
        if len(path) > LONGEST_KEY_BYTES:
            return None
        place = self.zones.child(self.zones.root, top)
        if place is None or not place.zone.is_store or not place.zone.sends:
            return None
        directory = self.formats.partition(key)
        return None if directory is None or directory.count(b"/") > _MOST_LEVELS else b"%s/%s" % (top, directory)
