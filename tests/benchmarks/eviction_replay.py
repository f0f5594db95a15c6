"""Replay of a trace of cached files (``daemons.faults.cache_trace``) with a cache of limited size: which reads miss.

Policies decide by insertions and reads alone, as the daemon does. ``Optimum`` knows the future: it evicts what is read again
latest, or never (Bélády); with files of different sizes that is close to the optimum, not it.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from holdfast.capacity import Candidate, first_to_evict
from holdfast.system.file_id import NO_FILE


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a trace."""

    op: Literal["write", "read", "delete"]
    path: str
    bytes: int


@dataclass
class Result:
    """What a replay came to: reads, those that missed, and bytes fetched for these."""

    reads: int = 0
    misses: int = 0
    fetched_bytes: int = 0


class Policy(Protocol):
    """Which file is evicted next."""

    def insert(self, path: str, now: int) -> None:
        """The file is in the cache now."""

    def read(self, path: str, now: int) -> None:
        """The file, which is in the cache, is read."""

    def remove(self, path: str) -> None:
        """The file was deleted."""

    def evict(self) -> str:
        """Take a file out and return it."""


class LRU:
    """The least recently used goes first."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def insert(self, path: str, now: int) -> None:
        del now
        self._order[path] = None

    def read(self, path: str, now: int) -> None:
        del now
        self._order.move_to_end(path)

    def remove(self, path: str) -> None:
        del self._order[path]

    def evict(self) -> str:
        return self._order.popitem(last=False)[0]


class FIFO(LRU):
    """The oldest goes first."""

    def read(self, path: str, now: int) -> None:
        """Reads change nothing."""


class Sieve:
    """SIEVE (Zhang et al., NSDI 2024): a hand goes from the oldest to the newest, and spares once what was read."""

    def __init__(self) -> None:
        self._visited: OrderedDict[str, bool] = OrderedDict()
        self._passed: list[str] = []
        """What the hand has spared on its way, oldest first: it stands behind the last of them."""

    def insert(self, path: str, now: int) -> None:
        del now
        self._visited[path] = False

    def read(self, path: str, now: int) -> None:
        del now
        self._visited[path] = True

    def remove(self, path: str) -> None:
        del self._visited[path]

    def evict(self) -> str:
        passed = set(self._passed)
        while True:
            ahead = next((path for path in self._visited if path not in passed), None)
            if ahead is None:
                self._passed, passed = [], set()
            elif self._visited[ahead]:
                self._visited[ahead] = False
                self._passed.append(ahead)
                passed.add(ahead)
            else:
                del self._visited[ahead]
                return ahead


class S3FIFO:
    """S3-FIFO (Yang et al., SOSP 2023): a small queue for what is new, a large one for what was read again, and ghosts."""

    def __init__(self, small_share: float = 0.1) -> None:
        self._share = small_share
        self._small: OrderedDict[str, int] = OrderedDict()
        self._main: OrderedDict[str, int] = OrderedDict()
        self._ghosts: deque[str] = deque()

    def insert(self, path: str, now: int) -> None:
        del now
        (self._main if path in self._ghosts else self._small)[path] = 0

    def read(self, path: str, now: int) -> None:
        del now
        queue = self._small if path in self._small else self._main
        queue[path] = min(3, queue[path] + 1)

    def remove(self, path: str) -> None:
        (self._small if path in self._small else self._main).pop(path)

    def evict(self) -> str:
        while True:
            if self._small and (not self._main or len(self._small) >= self._share * (len(self._small) + len(self._main))):
                path, reads = self._small.popitem(last=False)
                if reads:
                    self._main[path] = 0
                    continue
                self._ghosts.append(path)
                while len(self._ghosts) > max(16, len(self._main)):
                    self._ghosts.popleft()
                return path
            path, reads = self._main.popitem(last=False)
            if not reads:
                return path
            self._main[path] = reads - 1


class Holdfast:
    """The daemon's own policy (``holdfast.capacity``)."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._cached: dict[str, Candidate] = {}

    def insert(self, path: str, now: int) -> None:
        event = self._events[now]
        self._cached[path] = Candidate(NO_FILE, event.bytes, now, on_probation=event.op == "read")

    def read(self, path: str, now: int) -> None:
        self._cached[path] = replace(self._cached[path], used_ns=now, on_probation=False)

    def remove(self, path: str) -> None:
        del self._cached[path]

    def evict(self) -> str:
        paths = {candidate.used_ns: path for path, candidate in self._cached.items()}
        path = paths[first_to_evict(self._cached.values(), 1)[0].used_ns]
        del self._cached[path]
        return path


class Optimum:
    """What is read again latest goes first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._next_read: list[float] = [math.inf] * len(events)
        coming: dict[str, float] = {}
        for number in range(len(events) - 1, -1, -1):
            event = events[number]
            self._next_read[number] = coming.get(event.path, math.inf)
            if event.op == "read":
                coming[event.path] = number
            else:
                coming.pop(event.path, None)
        self._cached: dict[str, float] = {}

    def insert(self, path: str, now: int) -> None:
        self._cached[path] = self._next_read[now]

    read = insert

    def remove(self, path: str) -> None:
        del self._cached[path]

    def evict(self) -> str:
        path = max(self._cached, key=lambda each: self._cached[each])
        del self._cached[path]
        return path


POLICIES: dict[str, Callable[[Sequence[Event]], Policy]] = {
    "LRU": lambda _: LRU(),
    "FIFO": lambda _: FIFO(),
    "SIEVE": lambda _: Sieve(),
    "S3-FIFO": lambda _: S3FIFO(),
    "Holdfast": Holdfast,
    "optimum": Optimum,
}


def largest_footprint(events: Sequence[Event]) -> int:
    """Return the most bytes that are cached at one time when nothing is ever evicted."""
    cached: dict[str, int] = {}
    total = most = 0
    for event in events:
        total -= cached.pop(event.path, 0)
        if event.op != "delete":
            cached[event.path] = event.bytes
            total += event.bytes
        most = max(most, total)
    return most


def replayed(events: Sequence[Event], policy: Policy, cache_bytes: int) -> Result:
    """Return what becomes of the reads with a cache of this size."""
    cached: dict[str, int] = {}
    result = Result()
    total = 0
    for now, event in enumerate(events):
        is_hit = event.path in cached
        if event.op == "delete" or (is_hit and event.op == "write"):
            if is_hit:
                total -= cached.pop(event.path)
                policy.remove(event.path)
            if event.op == "delete":
                continue
        elif is_hit:
            result.reads += 1
            policy.read(event.path, now)
            continue
        if event.op == "read":
            result.reads += 1
            result.misses += 1
            result.fetched_bytes += event.bytes
        if event.bytes > cache_bytes:
            continue
        while total + event.bytes > cache_bytes:
            total -= cached.pop(policy.evict())
        cached[event.path] = event.bytes
        total += event.bytes
        policy.insert(event.path, now)
    return result
