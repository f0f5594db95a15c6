"""The eviction policy, as pure functions: a segmented LRU.

What was fetched and not opened again since is on probation, and goes first: whoever reads much once (a backup, a scan) takes
little from others. What was written here, or opened again, is protected, because a restarted job reads what it wrote last.
Within each segment the least recently used goes first. ``docs/performance.md`` compares it with other policies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from holdfast.config import CacheSection
from holdfast.store import DiskSpace, Space
from holdfast.system.file_id import FileId

PROBATION_SHARE = 0.1
"""The share of the cache that files on probation may keep before they are evicted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the cache on a disk: ``max_bytes`` (0: no limit) bounds its size there, and a reserve stays free.

    The reserve is ``min_free_share`` of the disk, of its bytes and of its inodes, and ``min_free_bytes`` at least. When the
    cache exceeds its limit it shrinks to ``low_watermark`` of it, so that not every fetch has to evict.
    """

    max_bytes: int
    min_free_bytes: int
    low_watermark: float
    min_free_share: float = 0.0

    @classmethod
    def configured(cls, cache: CacheSection) -> Limits:
        """Return the limits that ``[cache]`` sets."""
        return cls(int(cache.max_bytes), int(cache.min_free_bytes), cache.low_watermark, cache.min_free_share)

    @property
    def shrunk(self) -> Limits:
        """The limits of a cache that has just been shrunk."""
        return replace(self, max_bytes=int(self.max_bytes * self.low_watermark))

    def reserve(self, disk: DiskSpace) -> Space:
        """Return what is kept free of a disk. One without a fixed number of inodes has a reserve of bytes alone."""
        size_bytes = max(self.min_free_bytes, int(self.min_free_share * disk.size_bytes))
        return Space(int(self.min_free_share * disk.files), size_bytes)


@dataclass(frozen=True, slots=True)
class Usage:
    """The bytes that the cache has on a disk, and the space of that disk."""

    cached_bytes: int
    disk: DiskSpace


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clean, unpinned file: dropping it costs nothing but time.

    ``used_ns`` is the time of its last use, ``on_probation`` whether it was fetched and not opened again since.
    """

    inode: FileId
    size_bytes: int
    used_ns: int
    on_probation: bool = False


def to_free(limits: Limits, usage: Usage, wanted: Space, ahead_bytes: int = 0) -> Space:
    """Return what must be freed before ``wanted`` may be taken; nothing if there is room.

    ``ahead_bytes`` stay free in place of the reserve where they are more, because so much is about to be written.
    """
    reserve, disk = limits.reserve(usage.disk), usage.disk
    below_reserve = max(reserve.size_bytes, ahead_bytes) + wanted.size_bytes - disk.free_bytes
    cached_bytes = usage.cached_bytes + wanted.size_bytes
    above_watermark = 0
    if limits.max_bytes and cached_bytes > limits.max_bytes:
        above_watermark = cached_bytes - int(limits.max_bytes * limits.low_watermark)
    files = reserve.files + wanted.files - disk.free_files if disk.files else 0
    return Space(max(0, files), max(0, above_watermark, below_reserve))


def can_ever_fit(limits: Limits, usage: Usage, wanted_bytes: int) -> bool:
    """Say whether ``wanted_bytes`` would fit into an empty cache. If not, do not evict for their sake."""
    within_limit = not limits.max_bytes or wanted_bytes <= limits.max_bytes
    reserve_bytes = limits.reserve(usage.disk).size_bytes
    return within_limit and usage.disk.free_bytes + usage.cached_bytes - wanted_bytes >= reserve_bytes


def first_to_evict(candidates: Iterable[Candidate], most: int) -> list[Candidate]:
    """Return ``most`` candidates in the order of eviction. Evict from the front until enough is free."""
    probation, protected = _Segment(most), _Segment(most)
    for candidate in candidates:
        (probation if candidate.on_probation else protected).add(candidate)
    order: list[Candidate] = []
    first, then = probation.oldest_first(), protected.oldest_first()
    bytes_first, bytes_then = probation.total_bytes, protected.total_bytes
    while (first or then) and len(order) < most:
        if first and (not then or bytes_first >= PROBATION_SHARE * (bytes_first + bytes_then)):
            order.append(first.popleft())
            bytes_first -= order[-1].size_bytes
        else:
            order.append(then.popleft())
            bytes_then -= order[-1].size_bytes
    return order


class _Segment:
    """Candidates of one kind: their bytes, and the ``most`` that are least recently used."""

    def __init__(self, most: int) -> None:
        self.total_bytes = 0
        self._most = most
        self._count = 0
        self._newest_first: list[tuple[int, int, Candidate]] = []

    def add(self, candidate: Candidate) -> None:
        self.total_bytes += candidate.size_bytes
        self._count -= 1
        heappush(self._newest_first, (-candidate.used_ns, self._count, candidate))
        if len(self._newest_first) > self._most:
            heappop(self._newest_first)

    def oldest_first(self) -> deque[Candidate]:
        return deque(candidate for _, _, candidate in sorted(self._newest_first, reverse=True))
