"""Sums over the kernel's requests, grouped by operation, process, query, zone or directory.

Pure: it is fed with what ``ControlClient.watch_operations`` yields, and asks /proc for nothing but names of processes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from holdfast.control.messages import OperationInfo
from holdfast.system.processes import leader_of

_BOUNDS = [1e-6 * 1.3**number for number in range(70)]  # from a microsecond to about a minute, each a third longer
_MOST_GROUPS = 10_000
_MOST_NAMES = 10_000
_OTHERS = "(others)"
_ORDINARY = {("lookup", "ENOENT"), ("getxattr", "ENODATA")}  # answers that programs ask for, not failures
_INSIDE = re.compile(
    r"/(state|offsets|commits|sources|metadata|_spark_metadata|shared|taskowned|chk-\d+|savepoint-[^/]*)(/|$)"
)
_DIRECTORIES_SHOWN = 3


@dataclass(slots=True)
class Tally:
    """The sums over the operations of one group. Times are in seconds."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    errors: int = 0
    hits: int = 0
    misses: int = 0
    fetched_bytes: int = 0
    data_bytes: int = 0
    store_seconds: float = 0.0
    _lengths: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))

    def add(self, operation: OperationInfo) -> None:
        """Count an operation."""
        self.count += 1
        self.seconds += operation.seconds
        self.longest = max(self.longest, operation.seconds)
        self.errors += bool(operation.error) and (operation.operation, operation.error) not in _ORDINARY
        self.hits += operation.cache == "hit"
        self.misses += operation.cache == "miss"
        self.fetched_bytes += operation.fetched_bytes
        self.data_bytes += operation.data_bytes
        self.store_seconds += operation.store_seconds
        self._lengths[bisect_left(_BOUNDS, operation.seconds)] += 1

    def include(self, other: Tally) -> None:
        """Count what another tally has counted."""
        self.count += other.count
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)
        self.errors += other.errors
        self.hits += other.hits
        self.misses += other.misses
        self.fetched_bytes += other.fetched_bytes
        self.data_bytes += other.data_bytes
        self.store_seconds += other.store_seconds
        self._lengths = [mine + more for mine, more in zip(self._lengths, other._lengths, strict=True)]

    def within(self, share: float) -> float:
        """Return the time within which this ``share`` of them ended, a third too long at most."""
        if not self.count:
            return 0.0
        at = bisect_left(list(accumulate(self._lengths)), share * self.count)
        return min(self.longest, _BOUNDS[min(at, len(_BOUNDS) - 1)])


def described(thread: int) -> str:
    """Return the number and the name of a thread's process. Raises ``OSError`` or ``ValueError`` if it has ended."""
    pid = leader_of(thread)
    return f"{pid} {Path(f'/proc/{pid}/comm').read_text(errors='replace').rstrip()}"


class Processes:
    """The processes behind threads, remembered after their end. ``describe`` does what ``described`` does."""

    def __init__(self, describe: Callable[[int], str] = described) -> None:
        self._describe = describe
        self._names: dict[int, str] = {}

    def name(self, thread: int) -> str:
        """Return the number and the name of the process; the number of the thread alone if it has ended unseen."""
        if thread == 0:
            return "kernel"
        if thread not in self._names:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            try:
                self._names[thread] = self._describe(thread)
            except (OSError, ValueError):
                self._names[thread] = str(thread)
        return self._names[thread]


class Groups:
    """The ways to group operations. ``stores`` are the names of the zones over stores."""

    def __init__(self, mountpoint: str, stores: Iterable[str], processes: Processes) -> None:
        self._mountpoint = mountpoint
        self._stores = frozenset(stores)
        self.by: dict[str, Callable[[OperationInfo], str]] = {
            "operation": lambda each: each.operation,
            "process": lambda each: processes.name(each.pid),
            "place": lambda each: self.place(each.path),
            "zone": lambda each: each.zone,
            "path": lambda each: self.short(each.path),
        }

    def short(self, path: str) -> str:
        """Return ``path`` without the mountpoint."""
        return path.removeprefix(self._mountpoint).removeprefix("/") or "/"

    def place(self, path: str) -> str:
        """Return the query or the job that ``path`` is a part of, or the working directory that it is in."""
        names = self.short(path).split("/")
        if names[0] not in self._stores:
            return "/".join(names[:2])
        inside = _INSIDE.search(self.short(path))
        return (
            self.short(path)[: inside.start()] if inside else "/".join(names[: -1 or None][:_DIRECTORIES_SHOWN]) or names[0]
        )


class Activity:
    """Tallies of operations by ``key``. Groups beyond a limit are counted together as others."""

    def __init__(self, key: Callable[[OperationInfo], str]) -> None:
        self._key = key
        self.tallies: dict[str, Tally] = {}
        self.total = Tally()

    def add(self, operation: OperationInfo) -> None:
        """Count an operation."""
        self.total.add(operation)
        key = self._key(operation)
        if key not in self.tallies and len(self.tallies) >= _MOST_GROUPS:
            key = _OTHERS
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = Tally()
        tally.add(operation)


class Lately:
    """The activity of the last ``spans`` spans of time, each ended by ``turn``."""

    def __init__(self, key: Callable[[OperationInfo], str], spans: int) -> None:
        self._key = key
        self._spans: deque[Activity] = deque([Activity(key)], maxlen=spans)

    def add(self, operation: OperationInfo) -> None:
        """Count an operation in the present span."""
        self._spans[-1].add(operation)

    def turn(self) -> None:
        """Begin a new span; forget the oldest if there are enough."""
        self._spans.append(Activity(self._key))

    @property
    def spans(self) -> int:
        """The number of spans, the present one included."""
        return len(self._spans)

    def tallies(self) -> dict[str, Tally]:
        """Return the sums over all spans, by group."""
        found: dict[str, Tally] = {}
        for span in self._spans:
            for key, tally in span.tallies.items():
                found.setdefault(key, Tally()).include(tally)
        return found
