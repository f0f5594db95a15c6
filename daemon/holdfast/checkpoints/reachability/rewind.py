"""The plan of a rewind: what batches after one have left, in the order in which it is set aside."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import LocationLayout
from holdfast.checkpoints.plans import Listed, Phase, Plan, PlanEntry, Policy, Reason
from holdfast.checkpoints.reachability.division import Division
from holdfast.errors import PlanError

_SECOND_NS = 10**9


def rewind(listing: Iterable[Listed], batch: int, policy: Policy, now_ns: int, formats: Formats = FORMATS) -> Plan:
    """Plan to take the query at the root of ``listing`` back to ``batch``.

    Raises ``PlanError`` when there is no such query or batch, or when anything is younger than the
    policy's grace age: then the query may be running.
    """
    layout, below = location_at_root(listing, formats)
    aside = layout.set_aside + b"/"
    files = (each for each in below if not (each.is_directory or each.name.startswith(aside)))
    newest = max(files, key=lambda each: each.mtime_ns)
    silent_ns = now_ns - newest.mtime_ns
    if silent_ns < policy.grace_ns:
        raise PlanError(
            f"{_text(newest.name)} was written {max(0, silent_ns) // _SECOND_NS} s ago: the query seems to run; stop it and "
            f"wait until nothing was written for {policy.grace_ns // _SECOND_NS} s (or say --idle 0 if it has surely ended)"
        )
    state, *logs = layout.later(b"", below, batch)
    entries = [_entry(listed, batch, now_ns, Phase.MANIFEST) for listed in state]
    entries += [_entry(listed, batch, now_ns, Phase.FILE) for step in logs for listed in step]
    return Plan(tuple(entries))


def location_at_root(listing: Iterable[Listed], formats: Formats = FORMATS) -> tuple[LocationLayout, list[Listed]]:
    """Return the layout of the query at the root of a listing, and all that belongs to it. Raises ``PlanError``."""
    location = Division(listing, formats).locations.get(b"")
    if location is None:
        titles = " or ".join(f"a {layout.title}" for layout in formats.locations)
        raise PlanError(f"this is not {titles}")
    return formats.locations[location.layout], location.listing


def _entry(listed: Listed, batch: int, now_ns: int, phase: Phase) -> PlanEntry:
    age_ns = now_ns - listed.mtime_ns
    return PlanEntry(listed.name, Reason.REWOUND, f"batch {batch}", listed.size_bytes, listed.mtime_ns, age_ns, phase)


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
