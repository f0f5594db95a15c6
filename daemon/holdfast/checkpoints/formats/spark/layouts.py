"""Spark's two layouts: the checkpoint locations of Structured Streaming, and the logs of its file sinks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface import (
    LOGS,
    OTHER,
    TEMPORARY,
    Batch,
    Copied,
    Counted,
    EngineVersion,
    Evidence,
    FinishedBatch,
    Found,
    GroupLayout,
    LocationLayout,
    Restore,
    StatePartition,
)
from holdfast.checkpoints.formats.spark import drop, history, restart, restores
from holdfast.checkpoints.formats.spark.names import STATE_OF_A_VERSION, SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.query import SET_ASIDE, Query, plan_query, plan_wrapped
from holdfast.checkpoints.plans import Listed, PlanBuilder

_METADATA = "metadata"
_LOG = "log"
_LOG_ENTRY = re.compile(rb"(?:(?P<location>.*)/)?(?:offsets|commits)/[0-9]+", re.DOTALL)
_SINK_LOG = b"_spark_metadata/"
_STATE = STATE_OF_A_VERSION | {SparkKind.SST, SparkKind.ARCHIVED_LOG}


class Queries(LocationLayout):
    """A checkpoint location shows by ``metadata`` beside ``offsets/<n>`` or ``commits/<n>``."""

    title = "checkpoint location of Spark"
    named_by = "commits/<n> of a Spark query"
    marks = frozenset({_METADATA, _LOG})
    lasting_marks = frozenset({_LOG})
    purposes = ("state",)
    entry = b"metadata"
    set_aside = SET_ASIDE

    def evidence(self, listed: Listed) -> Evidence | None:
        """Return what a name shows, by itself."""
        if SET_ASIDE + b"/" in listed.name:
            return None
        directory, _, last = listed.name.rpartition(b"/")
        if last == b"metadata" and not listed.is_directory:
            return Evidence(directory, _METADATA)
        match = _LOG_ENTRY.fullmatch(listed.name)
        return Evidence(match["location"] or b"", _LOG) if match else None

    def sweep(self, location: bytes, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan what can be deleted of a query."""
        yield from plan_query(Query.of(location, listing), builder)

    def census(self, location: bytes, listing: Iterable[Listed]) -> Iterable[Counted]:
        """Count the batches of a query, and its state."""
        return counted(Query.of(location, listing))

    def batch_of(self, name: bytes) -> Batch | None:
        """Return the batch that is named by its commit or offsets."""
        return drop.batch_of(name)

    def batches_to_drop(self, listing: Iterable[Listed], number: int, *, all_before: bool) -> tuple[bytes, ...]:
        """Return the name of the batch that is dropped with all before it. Raises ``PlanError``."""
        return drop.batches_to_drop(listing, number, all_before=all_before)

    def drop(self, location: bytes, listing: Iterable[Listed], last: int, builder: PlanBuilder) -> Asking[None]:
        """Plan to drop all batches up to ``last``. Raises ``PlanError`` when Spark needs one of them to start."""
        yield from drop.plan_batches(Query.of(location, listing), last, builder)

    def purpose_of(self, name: bytes) -> str:
        """Say what a file is for."""
        parsed = parse_spark(name)
        if not isinstance(parsed, SparkName):
            return OTHER
        if parsed.layers:
            return TEMPORARY
        return "state" if parsed.kind in _STATE else LOGS

    def state_of(self, name: bytes) -> StatePartition | FinishedBatch | None:
        """Tell state and commits from the rest. State versions are numbered one above the batch that wrote them."""
        parsed = parse_spark(name)
        if not isinstance(parsed, SparkName) or parsed.layers:
            return None
        if parsed.kind is SparkKind.COMMIT and parsed.number is not None:
            return FinishedBatch(parsed.number + 1)
        if parsed.store is None or parsed.kind is SparkKind.STATE_SCHEMA:
            return None
        return StatePartition(parsed.store.operator, parsed.store.partition)

    def state_to_read(self, location: bytes, files: Sequence[Listed], version: int) -> Asking[list[bytes]]:
        """Return what a restarted query reads first of one partition."""
        return restart.state_to_read(location, files, version)

    def restores(
        self,
        location: bytes,
        listing: Iterable[Listed],
        batch: int | None,
        spoilt: Collection[bytes],
        engine: EngineVersion | None = None,
    ) -> Asking[list[Restore]]:
        """Say of each retained batch whether a restart from it finds all it reads."""
        return restores.restores(location, listing, batch, spoilt, engine)

    def later(self, location: bytes, listing: Iterable[Listed], batch: int) -> list[list[Listed]]:
        """Return what later batches have left: their state, then commits and offsets, the newest first."""
        return history.later(location, listing, batch)

    def copied(self, location: bytes, listing: Iterable[Listed], batch: int) -> Asking[Copied]:
        """Return what a copy takes."""
        return history.copied(location, listing, batch)

    def moved(self, content: bytes, source: bytes, target: bytes) -> bytes:
        """Return an operator's metadata with the paths of the copy."""
        return history.moved_metadata(content, source, target)

    def new_entry(self, content: bytes, new_id: str) -> bytes:
        """Return ``metadata`` with another id."""
        return history.new_metadata(content, new_id)


class SinkLogs(GroupLayout):
    """Logs of file sinks: each directory ``_spark_metadata`` is judged by itself."""

    def group_of(self, listed: Listed) -> bytes | None:
        """Return the directory of an entry, or of what belongs to one."""
        if listed.is_directory or _SINK_LOG not in listed.name:
            return None
        name = parse_spark(listed.name)
        is_entry = isinstance(name, SparkName) and name.kind is SparkKind.SINK_LOG
        return listed.name.rpartition(b"/")[0] if is_entry else None

    def sweep(self, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan to remove temporary files and checksums beside a log; its entries stay."""
        named = [(listed, parse_spark(listed.name)) for listed in listing]
        files = [(listed, name) for listed, name in named if isinstance(name, SparkName)]
        entries = {listed.name for listed, name in files if not name.layers}
        plan_wrapped([each for each in files if each[1].layers], entries, builder)
        builder.retain(entries)
        yield from ()


def counted(query: Query) -> Iterator[Counted]:
    """Count a query's batches, and its state."""
    prefix = query.location + b"/" if query.location else b""
    for number in sorted(query.commits.keys() | query.offsets.keys()):
        files = [log[number] for log in (query.commits, query.offsets) if number in log]
        found = Found.of(b"%scommits/%d" % (prefix, number), "batch", files, is_complete=number in query.commits)
        yield Counted(query.location, number, found)
    state = [listed for store in query.stores.values() for listed in (*store.shared, *(each for each, _ in store.versions))]
    if state:
        yield Counted(query.location, -1, Found.of(b"%sstate" % prefix, "state", state, is_complete=True))
