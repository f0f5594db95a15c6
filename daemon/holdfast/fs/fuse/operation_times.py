"""The durations of the kernel's requests, by kind and zone: from reading a request to the reply.

The C module times those that are answered at once, and counts in the same array (native/latency_counts.h). What the kernel
does by itself, reading and writing of files in passthrough above all, is no request and is in no count.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from holdfast.kernel import OPCODE_LIMIT, Connection, Opcode
from holdfast.telemetry import Histogram, Latencies

_US, _MS, _S = 1_000, 1_000_000, 1_000_000_000
_BOUNDS_NS = (
    *(5 * _US, 10 * _US, 25 * _US, 50 * _US, 100 * _US, 250 * _US, 500 * _US),
    *(_MS, 5 * _MS, 25 * _MS, 100 * _MS, 500 * _MS, 2_500 * _MS, 10 * _S, 60 * _S),
)
"""The ends of the buckets in nanoseconds, from what C answers to what waits for a store that is down."""
_ROOT_ZONE = "/"
_CALLED = {Opcode.RENAME2: "rename", Opcode.BATCH_FORGET: "forget"}


class OperationTime(NamedTuple):
    """The durations of one kind of request in one zone."""

    operation: str
    zone: str
    durations: Histogram


class OperationTimes:
    """The histograms. ``zones`` has the number of each directory in the root, from 1 on; all else in the root has 0."""

    def __init__(self, zones: Mapping[bytes, int]) -> None:
        self._names = [_ROOT_ZONE, *(name.decode() for name in zones)]
        self._rows = range(OPCODE_LIMIT * len(self._names))
        self._latencies = Latencies(len(self._rows), _BOUNDS_NS)
        self.zone = array("I", [0])
        """The number of the zone of the request that is being answered at once."""

    def zone_name(self, zone: int) -> str:
        """Return the name of a zone: its directory in the root."""
        return self._names[zone]

    def count_in(self, connection: Connection) -> None:
        """Let the C module count what is answered directly."""
        latencies = self._latencies
        connection.count_latencies(latencies.counts, len(self._names), latencies.bounds, self.zone)

    def observe(self, opcode: Opcode, zone: int, nanoseconds: int) -> None:
        """Count a request."""
        self._latencies.observe(opcode * len(self._names) + zone, nanoseconds)

    def hand_over(self, opcode: Opcode, zone: int, nanoseconds: int) -> None:
        """Do what ``observe`` does, for a thread: the request is counted at the next ``take_over``."""
        self._latencies.hand_over(opcode * len(self._names) + zone, nanoseconds)

    def take_over(self) -> None:
        """Count what threads have handed over."""
        self._latencies.take_over()

    def all(self) -> Iterator[OperationTime]:
        """Return what was counted, kind by kind."""
        self.take_over()
        for operation, opcodes in groupby(sorted(Opcode, key=name_of), key=name_of):
            opcodes_of_it = list(opcodes)
            for zone, name in enumerate(self._names):
                rows = (opcode * len(self._names) + zone for opcode in opcodes_of_it)
                durations = self._latencies.histogram(*rows)
                if durations is not None:
                    yield OperationTime(operation, name, durations)

    def together(self) -> Histogram | None:
        """Return what was counted, all kinds and zones together; None if that is nothing."""
        self.take_over()
        return self._latencies.histogram(*self._rows)


def name_of(opcode: Opcode) -> str:
    """Return the name under which a kind of request is counted and shown."""
    return _CALLED.get(opcode, opcode.name.lower())
