"""What to evict: pure functions of what there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_bytes`` (0: no limit) bounds the cache, ``min_free_bytes`` is kept free on the disk; once something must go,
    the cache shrinks to ``low_watermark`` of its limit, so that not every fetch has to evict.
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
    """A clean, closed, unpinned file: dropping it loses nothing but time. ``used_seconds`` is the time of its last use."""

    inode: int
    size_bytes: int
    used_seconds: int


def bytes_to_free(limits: Limits, usage: Usage, wanted_bytes: int) -> int:
    """Return how much must go before ``wanted_bytes`` may be written; 0 when there is room."""
    over_limit = usage.cached_bytes + wanted_bytes - limits.max_bytes if limits.max_bytes else 0
    below_reserve = limits.min_free_bytes + wanted_bytes - usage.free_bytes
    if over_limit > 0:
        over_limit += int(limits.max_bytes * (1 - limits.low_watermark))
    return max(0, over_limit, below_reserve)


def choose(candidates: Iterable[Candidate], wanted_bytes: int) -> list[Candidate]:
    """Return what to evict so that ``wanted_bytes`` become free: the longest unused first, and no more than needed.

    All of them when they are not enough.
    """
    chosen = []
    for candidate in sorted(candidates, key=lambda candidate: (candidate.used_seconds, candidate.inode)):
        if wanted_bytes <= 0:
            break
        chosen.append(candidate)
        wanted_bytes -= candidate.size_bytes
    return chosen
