"""The division of a listing among layouts, by what each name says by itself.

A directory is a checkpoint location if names with all marks of a layout show so; a name belongs to the innermost location
above it. Outside of locations it is a staged upload of Holdfast's, or it belongs to the first tree or else the first group
that knows it. A name that none of them knows stays.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import Counted, Evidence, Found, TreeName
from holdfast.checkpoints.plans import Listed, PlanBuilder, Reason
from holdfast.checkpoints.reachability.tree import Tree

_STAGED = re.compile(rb"\.holdfast/(?:[0-9a-f]{32}|sweep-[0-9]+|nodes/[^/]+)", re.DOTALL)
"""The names of staged uploads, of leases, and of what nodes that are gone have told of their holdings."""
_LEASE = re.compile(rb"\.holdfast/sweep-([0-9]+)")
"""The name of a lease by which a node leads sweeps, until a time in seconds since the epoch."""
_SECOND_NS = 10**9


class Part(enum.Enum):
    """The part of a listing that a name outside of checkpoint locations belongs to."""

    STAGED = "staged"
    TREE = "tree"
    GROUP = "group"
    UNKNOWN = "unknown"


class Placed(NamedTuple):
    """The place of a name outside of locations: its part, and the position of its layout among the formats' trees or groups.

    ``name`` is set in a tree, ``group`` in a group.
    """

    part: Part
    layout: int = 0
    name: TreeName | None = None
    group: bytes = b""


class LayoutEvidence(NamedTuple):
    """Evidence of a location of the layout at this position among the formats' ``locations``."""

    layout: int
    evidence: Evidence


def evidence_of(listed: Listed, formats: Formats) -> list[LayoutEvidence]:
    """Say which directories ``listed`` shows to be checkpoint locations, for each layout at most one."""
    found = ((position, layout.evidence(listed)) for position, layout in enumerate(formats.locations))
    return [LayoutEvidence(position, evidence) for position, evidence in found if evidence is not None]


def part_of(listed: Listed, formats: Formats) -> Placed:
    """Say what ``listed``, which lies in no checkpoint location, belongs to."""
    if _STAGED.fullmatch(listed.name) and not listed.is_directory:
        return Placed(Part.STAGED)
    for position, tree in enumerate(formats.trees):
        name: TreeName | None = tree.parse(listed)
        if name is not None:
            return Placed(Part.TREE, position, name)
    for position, layout in enumerate(formats.groups):
        group = layout.group_of(listed)
        if group is not None:
            return Placed(Part.GROUP, position, group=group)
    return Placed(Part.UNKNOWN)


def plan_staged(listed: Listed, builder: PlanBuilder) -> None:
    """Plan to remove a staged object, whose writer has not given it its name, or a lease that has ended."""
    lease = _LEASE.fullmatch(listed.name)
    if lease is not None and int(lease[1]) * _SECOND_NS > builder.now_ns:
        return  # whatever the grace age: without it, another node would lead in the same period
    if builder.is_old(listed):
        builder.add(listed, Reason.STAGED_UPLOAD, "of Holdfast")


class LocationListing(NamedTuple):
    """The files and directories in one location, and the position of its layout."""

    layout: int
    listing: list[Listed]


class Division:
    """A listing, divided: ``locations`` by name, ``groups`` by layout and name, a tree for each tree layout, and the rest.

    With ``damaged`` a location is one that has its layout's ``lasting_marks``, whatever else it has lost.
    """

    def __init__(self, listing: Iterable[Listed], formats: Formats, *, damaged: bool = False) -> None:
        listing = list(listing)
        self.locations = _locations(listing, formats, damaged=damaged)
        self.groups: dict[tuple[int, bytes], list[Listed]] = {}
        self.trees: list[Tree[Any]] = [
            Tree(layout, kind) for layout, kind in zip(formats.trees, formats.manifests, strict=True)
        ]
        self.staged: list[Listed] = []
        self.unknown: list[Listed] = []
        self._above: dict[bytes, LocationListing | None] = {}
        for listed in listing:
            location = self._location_above(listed.name.rpartition(b"/")[0])
            if location is not None:
                location.listing.append(listed)
            else:
                self._add(listed, part_of(listed, formats))

    def _location_above(self, directory: bytes) -> LocationListing | None:
        """Return the innermost location above a directory; each directory is looked up once.

        The directories above it are not kept: a name of a thousand components would take as much memory as a thousand names.
        """
        if directory not in self._above:
            above = directory
            while above and above not in self.locations:
                above = above.rpartition(b"/")[0]
            self._above[directory] = self.locations.get(above)
        return self._above[directory]

    def _add(self, listed: Listed, placed: Placed) -> None:
        if placed.part is Part.TREE:
            self.trees[placed.layout].add(listed, placed.name)
        elif placed.part is Part.GROUP:
            self.groups.setdefault((placed.layout, placed.group), []).append(listed)
        elif placed.part is Part.STAGED:
            self.staged.append(listed)
        elif not listed.is_directory:
            self.unknown.append(listed)


def _locations(listing: Sequence[Listed], formats: Formats, *, damaged: bool) -> dict[bytes, LocationListing]:
    found: dict[bytes, LocationListing] = {}
    for position, layout in enumerate(formats.locations):
        marks: dict[bytes, set[str]] = {}
        for listed in listing:
            evidence = layout.evidence(listed)
            if evidence is not None:
                marks.setdefault(evidence.location, set()).add(evidence.mark)
        for location, of_location in sorted(marks.items()):
            if of_location >= (layout.lasting_marks if damaged else layout.marks):
                found.setdefault(location, LocationListing(position, []))
    return found


def census(listing: Iterable[Listed], formats: Formats = FORMATS) -> list[Found]:
    """Return what there is, by job and location, batches and checkpoints in the order of their numbers."""
    division = Division(listing, formats)
    lines: list[Counted] = []
    for tree in division.trees:
        lines += tree.layout.census(tree.files)
    for location, (layout, below) in division.locations.items():
        lines += formats.locations[layout].census(location, below)
    return [line.found for line in sorted(lines, key=lambda line: (line.owner, line.number, line.found.name))]
