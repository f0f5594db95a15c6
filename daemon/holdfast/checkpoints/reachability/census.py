"""The census of the checkpoints below a root, as far as names tell, for people who want to look before they drop."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import Counted, Found
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability.division import Division


def census(listing: Iterable[Listed], formats: Formats = FORMATS) -> list[Found]:
    """Return what there is, by job and location, batches and checkpoints in the order of their numbers."""
    division = Division(listing, formats)
    lines: list[Counted] = []
    for tree in division.trees:
        lines += tree.layout.census(tree.files)
    for location, (layout, below) in division.locations.items():
        lines += formats.locations[layout].census(location, below)
    return [line.found for line in sorted(lines, key=lambda line: (line.owner, line.number, line.found.name))]
