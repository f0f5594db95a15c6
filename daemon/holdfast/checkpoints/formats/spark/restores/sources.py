"""The logs of a query's sources: what a restart reads of them.

A file source keeps a log of the files that it has seen, and offsets count its entries. When it starts it reads the newest
compacted entry and all after it; of what is older it reads those entries that come into the next batch, and finds them in
the compacted one if they have gone. Other sources keep nothing there that a restart needs. Sources: S ``FileStreamSource``,
``FileStreamSourceLog``, ``CompactibleFileStreamLog`` (Spark 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface import Fault
from holdfast.checkpoints.formats.spark.batch_log import SparkOffsets
from holdfast.checkpoints.formats.spark.manifests import SOURCE_LOG
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.restores.location import Findings, Location
from holdfast.checkpoints.manifests import Manifest


class SourceLogs:
    """The entries of all sources of one location, by the sources' directories."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._entries: dict[bytes, dict[int, bytes]] = {}
        self._read: dict[bytes, Manifest] = {}
        for name in location.relative():
            entry = parse_spark(name) if name.startswith(b"sources/") else None
            if isinstance(entry, SparkName) and entry.kind is SparkKind.SOURCE_LOG and not entry.layers:
                of_source = self._entries.setdefault(entry.source or b"", {})
                if entry.is_compacted or entry.number not in of_source:
                    of_source[entry.number or 0] = name

    def read(self) -> Asking[None]:
        """Read the ends of all entries."""
        names = [name for entries in self._entries.values() for name in entries.values()]
        self._read = yield from self._location.read(names, SOURCE_LOG)

    def findings(self, before: SparkOffsets | None, after: SparkOffsets | None) -> Findings:
        """Say what a restart reads, and what is wrong: ``after`` is where it goes on, ``before`` one batch before."""
        found = Findings()
        if after is None:
            return found
        earlier: set[int] = set()
        for source, offset in after.log_offsets.items():
            is_repeated = offset in earlier
            earlier.add(offset)
            if offset < 0 or (is_repeated and b"%d" % source not in self._entries):
                continue  # one source that the query reads twice has one log
            begins = before.log_offsets.get(source) if before else None
            for name, fault in self._needed(b"%d" % source, 0 if begins is None else begins + 1, offset):
                found.reads.append(self._location.whole(name))
                if fault is not None:
                    found.faults.append(fault)
        return found

    def _needed(self, source: bytes, begins: int, offset: int) -> Iterator[tuple[bytes, Fault | None]]:
        entries = self._entries.get(source, {})
        compacted = max((number for number, name in entries.items() if name.endswith(b".compact")), default=0)
        expected = compacted
        for number in sorted(number for number in entries if number >= min(begins, compacted)):
            if number > expected:
                break  # one that is missing says it all, and numbers are anybody's who writes there
            yield entries[number], self._location.unreadable(entries[number], self._read[entries[number]])
            expected = max(expected, number + 1)
        if expected <= max(offset, *entries, 0):
            name = b"sources/%s/%d" % (source, expected)
            yield name, self._location.fault(name)
