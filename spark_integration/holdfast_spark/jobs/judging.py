"""What executors judge of a sweep: one query of Spark's, one directory of a sink, files outside of both.

The judges are the daemon's own (``holdfast.checkpoints.reachability.parts``); here rows become what they take, and what they
plan becomes rows. One query is judged in one piece: a task holds the names of one checkpoint location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.checkpoints.hooks.stored import text_of
from holdfast.checkpoints.layouts import FlinkName, parse_flink
from holdfast.checkpoints.manifests import ManifestKind, ReferenceKind
from holdfast.checkpoints.reachability import Kept, Listed, Plan, PlanBuilder, PlanEntry, Policy, Wanted
from holdfast.checkpoints.reachability.flink_tree import references_of
from holdfast.checkpoints.reachability.parts import plan_directory_of_a_sink, plan_outside, sweep_query
from holdfast_spark.forms import LISTED, Form
from holdfast_spark.jobs.naming import listed_of
from holdfast_spark.jobs.reading import reader_below
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
"""An entry of a plan; or, with ``kept_because``, the name of what could not be judged, and nothing else."""

REFERENCES = Form(component="string", is_directory="boolean", name="string", kept_because="string")
"""The last component of something that is referred to; or the ``name`` of metadata that can't be read."""

UNREFERRED = LISTED.with_columns(numbers="array<bigint>", times="array<bigint>", silent_since_ns="bigint")
"""A file that nobody refers to, with the complete checkpoints of its job and the times at which they were completed."""


class Judge:
    """Judges what lies below ``root`` of a store, with ages as of ``now_ns``. Travels to executors."""

    def __init__(self, address: StoreAddress, root: str, policy: Policy, now_ns: int) -> None:
        self._address = address
        self._root = root
        self._policy = policy
        self._now_ns = now_ns

    def references(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read Flink's and Holdfast's metadata (``LISTED`` in, ``REFERENCES`` out)."""
        rows = (row for batch in batches for row in LISTED.rows(batch))
        yield from REFERENCES.batches(self._references(rows))

    def place(self, key: tuple[Any, ...], table: Any) -> Any:
        """Judge one checkpoint location of Spark's, or one ``_spark_metadata`` (``LISTED`` in, ``PLANNED`` out)."""
        place, is_query = (each.as_py() for each in key)
        rows = list(LISTED.rows(table))
        etags = {row[0]: row[3] for row in rows}
        if is_query:
            return PLANNED.table(_planned(self._query(place, map(listed_of, rows)), etags))
        builder = PlanBuilder(self._policy, self._now_ns)
        plan_directory_of_a_sink(map(listed_of, rows), builder)
        return PLANNED.table(_planned(builder.plan(), etags))

    def alone(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Judge what nobody refers to (``UNREFERRED`` in, ``PLANNED`` out)."""
        for batch in batches:
            builder = PlanBuilder(self._policy, self._now_ns)
            etags = {}
            for *row, numbers, times, silent_since_ns in UNREFERRED.rows(batch):
                listed = listed_of(tuple(row))
                etags[row[0]] = row[3]
                completed = dict(zip(numbers or (), times or (), strict=True))
                plan_outside(listed, completed, silent_since_ns or 0, builder)
            yield from PLANNED.batches(_planned(builder.plan(), etags))

    def _query(self, location: str, listing: Iterable[Listed]) -> Plan:
        examination = sweep_query(location.encode(), listing, self._policy, self._now_ns)
        read = reader_below(self._address, self._root)
        while wanted := examination.wanted:
            answers = in_parallel(read, wanted)
            examination.supply({each.name: answer for each, answer in zip(wanted, answers, strict=True)})
        return examination.result

    def _references(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        read = reader_below(self._address, self._root)

        def references(row: tuple[Any, ...]) -> Any:
            name = parse_flink(row[0].encode())
            wanted = Wanted(name.name, ManifestKind.CHECKPOINT, row[1])
            return references_of(name, read(wanted)) if isinstance(name, FlinkName) else ()

        for found in in_parallel(references, rows):
            if isinstance(found, Kept):
                yield None, None, found.scope.decode(), found.why
                continue
            for component, is_directory in {(each.last_component, each.kind is ReferenceKind.DIRECTORY) for each in found}:
                if (text := text_of(component)) is not None:  # or no listed name can equal it
                    yield text, is_directory, None, None


def _planned(plan: Plan, etags: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for entry in plan.entries:
        yield _entry(entry, etags)
    for kept in plan.kept:
        yield kept.scope.decode(), None, None, None, None, None, None, kept.why


def _entry(entry: PlanEntry, etags: Mapping[str, str]) -> tuple[Any, ...]:
    name = entry.name.decode()
    phase = int(entry.phase)
    return name, entry.reason.name, entry.about, entry.size_bytes, entry.mtime_ns, etags[name], phase, None
