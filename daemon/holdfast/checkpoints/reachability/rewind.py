"""The plan of a rewind: the files that later batches have left, in the order in which they are set aside; and the way back.

The way back takes the same steps in the other direction, so what is true of a rewind that is cut off holds for it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import LocationLayout
from holdfast.checkpoints.plans import Listed, Phase, Plan, PlanEntry, Policy, Reason
from holdfast.checkpoints.reachability.division import Division
from holdfast.errors import PlanError, QueryRunsError
from holdfast.system.text import shown

NOTE = b"rewind.json"
"""The note in the directory of what a rewind has set aside: the header of its plan. As long as the note is there, the rewind
can be undone."""
_SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class SetAside:
    """The files that a rewind has set aside: the ``note`` in its ``directory``, and the ``copies`` by their old names."""

    directory: bytes
    note: bytes
    copies: Mapping[bytes, Listed]


@dataclass(frozen=True, slots=True)
class PutBack:
    """The files that come back, under the names that they had: ``logs`` one after the other, then all of ``state``.

    ``doubtful`` are logs that are there already: by an earlier try or, if their bytes are others, by a query that ran since.
    """

    logs: Sequence[Listed]
    state: Sequence[Listed]
    doubtful: frozenset[bytes]


def rewind(listing: Iterable[Listed], batch: int, policy: Policy, now_ns: int, formats: Formats = FORMATS) -> Plan:
    """Plan to take the query at the root of ``listing`` back to ``batch``.

    Raises ``PlanError`` when there is no such query or batch, or when anything is younger than the
    policy's grace age: then the query may be running.
    """
    layout, below = location_at_root(listing, formats)
    check_silent(_files(layout, below), policy.grace_ns, now_ns)
    state, *logs = layout.later(b"", below, batch)
    entries = [_entry(listed, batch, now_ns, Phase.MANIFEST) for listed in state]
    entries += [_entry(listed, batch, now_ns, Phase.FILE) for step in logs for listed in step]
    return Plan(tuple(entries))


def set_aside(listing: Iterable[Listed], formats: Formats = FORMATS) -> list[SetAside]:
    """Return what rewinds of the query at the root of ``listing`` have set aside. Raises ``PlanError`` where no query is."""
    layout, below = location_at_root(listing, formats)
    files = {each.name: each for each in below if each.name.startswith(layout.set_aside + b"/") and not each.is_directory}
    is_note = re.compile(rb"%s/[^/]+/%s" % (re.escape(layout.set_aside), re.escape(NOTE))).fullmatch
    return [_set_aside(note, files) for note in files if is_note(note)]


def put_back(
    listing: Iterable[Listed], aside: SetAside, batch: int, idle_ns: int, now_ns: int, formats: Formats = FORMATS
) -> PutBack:
    """Return what has to be put back to undo a rewind to ``batch``.

    Raises ``PlanError`` when the query has written something since, or within ``idle_ns``.
    """
    layout, below = location_at_root(listing, formats)
    there = {each.name: each for each in _files(layout, below)}
    check_silent(there.values(), idle_ns, now_ns)
    before = {name: replace(each, name=name) for name, each in aside.copies.items()}
    state, *logs = layout.later(b"", [*(there | before).values()], batch)
    in_order = [each for step in reversed(logs) for each in step]
    new = next((each.name for each in (*in_order, *state) if each.name not in before), None)
    if new is not None:
        raise PlanError(f"{shown(new)} was written since the rewind: the query has another history now")
    doubtful = frozenset(each.name for each in in_order if each.name in there)
    return PutBack(in_order, [each for each in state if not _is_there(each, there)], doubtful)


def check_silent(files: Iterable[Listed], idle_ns: int, now_ns: int) -> None:
    """Raise ``QueryRunsError`` when one of the files of a query is younger than ``idle_ns``: then it may be running."""
    newest = max(files, key=lambda each: each.mtime_ns)
    silent_ns = now_ns - newest.mtime_ns
    if silent_ns < idle_ns:
        raise QueryRunsError(
            f"{shown(newest.name)} was written {max(0, silent_ns) // _SECOND_NS} s ago: the query seems to run; stop it and "
            f"wait until nothing was written for {idle_ns // _SECOND_NS} s (or say --idle 0 if it has surely ended)"
        )


def location_at_root(listing: Iterable[Listed], formats: Formats = FORMATS) -> tuple[LocationLayout, list[Listed]]:
    """Return the layout of the query at the root of a listing, and all that belongs to it. Raises ``PlanError``."""
    location = Division(listing, formats).locations.get(b"")
    if location is None:
        titles = " or ".join(f"a {layout.title}" for layout in formats.locations)
        raise PlanError(f"this is not {titles}")
    return formats.locations[location.layout], location.listing


def _set_aside(note: bytes, files: Mapping[bytes, Listed]) -> SetAside:
    directory = note.removesuffix(NOTE)
    copies = {name.removeprefix(directory): each for name, each in files.items() if name.startswith(directory)}
    del copies[NOTE]
    return SetAside(directory, note, copies)


def _entry(listed: Listed, batch: int, now_ns: int, phase: Phase) -> PlanEntry:
    age_ns = now_ns - listed.mtime_ns
    return PlanEntry(listed.name, Reason.REWOUND, f"batch {batch}", listed.size_bytes, listed.mtime_ns, age_ns, phase)


def _files(layout: LocationLayout, below: Iterable[Listed]) -> list[Listed]:
    """Return the files of a query, without those that rewinds have set aside."""
    aside = layout.set_aside + b"/"
    return [each for each in below if not (each.is_directory or each.name.startswith(aside))]


def _is_there(wanted: Listed, there: Mapping[bytes, Listed]) -> bool:
    return wanted.name in there and there[wanted.name].size_bytes == wanted.size_bytes
