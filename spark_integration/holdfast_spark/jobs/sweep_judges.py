"""The part of a sweep that executors do: judging a location, a group, a manifest, and files that nothing refers to.

The judges are the daemon's own (``holdfast.checkpoints.reachability.parts``); here rows become what they take, and what they
plan becomes rows. A checkpoint location is judged in one piece: a task holds the names of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Kept, Plan, PlanBuilder, PlanEntry, Policy
from holdfast.checkpoints.reachability.parts import plan_alone, read_references, sweep_group, sweep_location
from holdfast.checkpoints.references import ReferenceKind
from holdfast.checkpoints.sweeps.plan_format import text_of
from holdfast_spark.arrow_forms import LISTED, Form
from holdfast_spark.jobs.manifest_reads import examined, reader_below
from holdfast_spark.jobs.parsed_names import listed_of
from holdfast_spark.stores import StoreAddress, in_parallel

PLANNED = Form(
    name="string",
    reason="string",
    about="string",
    size_bytes="bigint",
    mtime_ns="bigint",
    etag="string",
    phase="int",
    kept_because="string",
)
"""An entry of a plan; or, with ``kept_because``, only the name of something that could not be judged."""

MANIFESTS = LISTED.with_columns(layout="bigint")
"""Manifests, with the positions of the trees that they belong to."""

REFERENCES = Form(layout="bigint", component="string", is_directory="boolean", name="string", kept_because="string")
"""The last component of something that is referred to; or the ``name`` of a manifest that the layout can't do without."""

UNREFERRED = LISTED.with_columns(numbers="array<bigint>", times="array<bigint>", silent_since_ns="bigint")
"""A file that nothing refers to, with the complete checkpoints of its job and the times at which they were completed."""


class Judge:
    """Judges what lies below ``root`` of a store, with ages as of ``now_ns``. Travels to executors."""

    def __init__(self, address: StoreAddress, root: str, policy: Policy, now_ns: int, formats: Formats = FORMATS) -> None:
        self.formats = formats
        self._address = address
        self._root = root
        self._policy = policy
        self._now_ns = now_ns

    def references(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read what manifests refer to (``MANIFESTS`` in, ``REFERENCES`` out)."""
        rows = (row for batch in batches for row in MANIFESTS.rows(batch))
        yield from REFERENCES.batches(self._references(rows))

    def unit(self, key: tuple[Any, ...], table: Any) -> Any:
        """Judge one checkpoint location or one group (``LISTED`` in, ``PLANNED`` out).

        ``key``: its name, whether it is a location, the position of its layout.
        """
        name, is_location, layout = (each.as_py() for each in key)
        rows = list(LISTED.rows(table))
        etags = {row[0]: row[3] for row in rows}
        listing = map(listed_of, rows)
        if is_location:
            examination = sweep_location(layout, name.encode(), listing, self._policy, self._now_ns, self.formats)
        else:
            examination = sweep_group(layout, listing, self._policy, self._now_ns, self.formats)
        if examination.wanted:
            examined(examination, reader_below(self._address, self._root))
        return PLANNED.table(_planned(examination.result, etags))

    def alone(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Judge what nothing refers to (``UNREFERRED`` in, ``PLANNED`` out)."""
        for batch in batches:
            builder = PlanBuilder(self._policy, self._now_ns)
            etags = {}
            for *row, numbers, times, silent_since_ns in UNREFERRED.rows(batch):
                listed = listed_of(tuple(row))
                etags[row[0]] = row[3]
                completed = dict(zip(numbers or (), times or (), strict=True))
                plan_alone(listed, completed, silent_since_ns or 0, builder, self.formats)
            yield from PLANNED.batches(_planned(builder.plan(), etags))

    def _references(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        read = reader_below(self._address, self._root)

        def references(row: tuple[Any, ...]) -> Any:
            *listed, layout = row
            return layout, examined(read_references(layout, listed_of(tuple(listed)), self.formats), read)

        for layout, found in in_parallel(references, rows):
            if isinstance(found, Kept):
                yield layout, None, None, found.scope.decode(), found.why
                continue
            for component, is_directory in {(each.last_component, each.kind is ReferenceKind.DIRECTORY) for each in found}:
                if (text := text_of(component)) is not None:  # or no listed name can equal it
                    yield layout, text, is_directory, None, None


def _planned(plan: Plan, etags: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for entry in plan.entries:
        yield _entry(entry, etags)
    for kept in plan.kept:
        yield kept.scope.decode(), None, None, None, None, None, None, kept.why


def _entry(entry: PlanEntry, etags: Mapping[str, str]) -> tuple[Any, ...]:
    name = entry.name.decode()
    phase = int(entry.phase)
    return name, entry.reason.name, entry.about, entry.size_bytes, entry.mtime_ns, etags[name], phase, None
