"""The durations of requests to one store, by kind and outcome: in the thread that makes them, without waiting for a turn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import HoldfastError, ObjectExistsError, ObjectMissingError, RemoteUnavailableError
from holdfast.telemetry import Histogram, Latencies

_KINDS = ("PROBE", "HEAD", "LIST", "CLOCK", "GET", "PUT", "COPY", "DELETE", "PRUNE")
_RESULTS = ("ok", "missing", "exists", "refused", "unavailable", "given-up")
_OK, _MISSING, _EXISTS, _REFUSED, _UNAVAILABLE, _GIVEN_UP = range(len(_RESULTS))
_MS, _S = 1_000_000, 1_000_000_000
_BOUNDS_NS = (
    *(_MS, 2_500_000, 5 * _MS, 10 * _MS, 25 * _MS, 50 * _MS, 100 * _MS, 250 * _MS, 500 * _MS),
    *(_S, 2_500 * _MS, 5 * _S, 10 * _S, 30 * _S, 60 * _S),
)
"""The ends of the buckets in nanoseconds, from a directory on the same disk to the default time-out."""


class RequestTime(NamedTuple):
    """The durations of the requests of one kind that ended in the same way."""

    kind: str
    result: str
    durations: Histogram


class RequestTimes:
    """The histograms of one store. Event loop only."""

    def __init__(self) -> None:
        self._latencies = Latencies(len(_KINDS) * len(_RESULTS), _BOUNDS_NS)

    def ended(self, kind: str, began_ns: int, problem: BaseException | None) -> float:
        """Count a request that began at ``began_ns`` of the performance counter (0: it did not); return its seconds."""
        if not began_ns:
            return 0.0
        took_ns = time.perf_counter_ns() - began_ns
        result = _OK if problem is None else _result(problem)
        self._latencies.observe(_KINDS.index(kind) * len(_RESULTS) + result, took_ns)
        return took_ns / _S

    def all(self) -> Iterator[RequestTime]:
        """Return what was counted."""
        for number, kind in enumerate(_KINDS):
            for result, name in enumerate(_RESULTS):
                durations = self._latencies.histogram(number * len(_RESULTS) + result)
                if durations is not None:
                    yield RequestTime(kind, name, durations)


def _result(problem: BaseException) -> int:
    match problem:
        case ObjectMissingError():
            return _MISSING
        case ObjectExistsError():
            return _EXISTS
        case RemoteUnavailableError():
            return _UNAVAILABLE
        case HoldfastError():
            return _REFUSED
    return _GIVEN_UP
