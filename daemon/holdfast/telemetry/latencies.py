"""Histograms of durations in fixed buckets: plain counts in one array, so that C can count in it too.

Changed on the event loop only. A thread hands its durations over; they are counted at the next ``take_over``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_NS = 1_000_000_000


class Histogram(NamedTuple):
    """Counted durations. ``buckets`` pairs each upper end in seconds with the number of durations up to it, from 0 on."""

    buckets: list[tuple[float, int]]
    total: int
    sum_seconds: float


class Latencies:
    """The histograms of ``rows`` kinds of durations, all with buckets that end at ``bounds_ns`` (nanoseconds, ascending)."""

    def __init__(self, rows: int, bounds_ns: Sequence[int]) -> None:
        self.bounds = array("Q", bounds_ns)
        self._width = len(bounds_ns) + 2
        self.counts = array("Q", bytes(8 * rows * self._width))
        """Three parts for each row: the counts of the buckets, the count of longer durations, and the sum in nanoseconds."""
        self._handed_over: deque[tuple[int, int]] = deque()

    def observe(self, row: int, nanoseconds: int) -> None:
        """Count a duration."""
        begin = row * self._width
        self.counts[begin + bisect_left(self.bounds, nanoseconds)] += 1
        self.counts[begin + self._width - 1] += nanoseconds

    def hand_over(self, row: int, nanoseconds: int) -> None:
        """Do as ``observe`` does, from a thread. Somebody must call ``take_over`` now and then."""
        self._handed_over.append((row, nanoseconds))

    def take_over(self) -> None:
        """Count what threads have handed over."""
        while self._handed_over:
            self.observe(*self._handed_over.popleft())

    def histogram(self, *rows: int) -> Histogram | None:
        """Return what was counted in these rows together; None if that is nothing."""
        parts = [self.counts[row * self._width : (row + 1) * self._width] for row in rows]
        *counts, longer, sum_ns = map(sum, zip(*parts, strict=True))
        buckets = list(zip((bound / _NS for bound in self.bounds), accumulate(counts), strict=True))
        total = sum(counts) + longer
        return Histogram(buckets, total, sum_ns / _NS) if total else None
