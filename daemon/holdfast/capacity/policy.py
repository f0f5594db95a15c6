"""The eviction policy, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_bytes`` (0: no limit) bounds the cache, and ``min_free_bytes`` stay free on the disk.

    When the cache exceeds its limit it shrinks to ``low_watermark`` of it, so that not every fetch has to evict.
    """

    max_bytes: int
    min_free_bytes: int
    low_watermark: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes in the cache, and bytes free on the disk."""

    cached_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clean, unpinned file: dropping it costs nothing but time.

    ``used_ns`` is the time of its last use.
    """

    inode: int
    size_bytes: int
    used_ns: int


def bytes_to_free(limits: Limits, usage: Usage, wanted_bytes: int) -> int:
    """Return how many bytes must be freed before ``wanted_bytes`` may be written; 0 if there is room."""
    below_reserve = limits.min_free_bytes + wanted_bytes - usage.free_bytes
    cached_bytes = usage.cached_bytes + wanted_bytes
    above_watermark = 0
    if limits.max_bytes and cached_bytes > limits.max_bytes:
        above_watermark = cached_bytes - int(limits.max_bytes * limits.low_watermark)
    return max(0, above_watermark, below_reserve)


def can_ever_fit(limits: Limits, usage: Usage, wanted_bytes: int) -> bool:
    """Say whether ``wanted_bytes`` would fit into an empty cache. If not, do not evict for their sake."""
    within_limit = not limits.max_bytes or wanted_bytes <= limits.max_bytes
    return within_limit and usage.free_bytes + usage.cached_bytes - wanted_bytes >= limits.min_free_bytes


def first_to_evict(candidates: Iterable[Candidate], most: int) -> list[Candidate]:
    """Return ``most`` candidates, least recently used first, without keeping all: evict from the front until enough is free."""
    return nsmallest(most, candidates, key=lambda candidate: candidate.used_ns)
