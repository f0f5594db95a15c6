"""A fleet on paper: who works with which partition, who has copies of it, and what it costs when nodes come and go.

Decisions are the project's own: drivers place by ``holdfast_spark.placement.assignment``, nodes keep copies by
``holdfast.standbys.assignment`` among those after the holder on ``holdfast.holdings.ring``. The rest is a model: reports
take seconds, looks at them minutes, a fetch as long as its bytes, and a part of each state is new in every hour.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from holdfast.holdings.ring import Ring
from holdfast.standbys.assignment import Fleet, Node, QueryAssignment
from holdfast_spark.placement.assignment import Held, assign

NODES, RACKS, CORES = 400, 20, 8
PARTITIONS = 20_000
"""The number of partitions of all queries together."""
STATE_BYTES = 25 * 10**6
NEW_AN_HOUR = 0.6
"""The part of a state that its checkpoint has renewed after an hour."""
FETCHED_A_SECOND = 50 * 10**6
"""The bytes that a node fetches for its standby copies in a second, if nothing else is said."""
_TOLD_SECONDS, _LOOK_SECONDS, _GONE_SECONDS = 5.0, 120.0, 1800.0
"""Until a change is told, between two looks of a standby, and until a node that is lost leaves the ring."""
_WORD_SECONDS, _OVERDUE_SECONDS, _SILENT_SECONDS = 120.0, 150.0, 360.0
"""Between two words of a node; from the last one until it counts as lost, if others have its partitions, and if not."""
_SOON_SECONDS, _SOON_LOOKS = 30.0, 4
"""Between two looks of a standby that has found a change, and how many there are."""


@dataclass(slots=True)
class Copy:
    """A node's copy of a partition: complete from ``ready`` on while it is ``kept``, as old as ``until`` if it is not."""

    ready: float
    kept: bool = True
    until: float = 0.0
    lacks: float = 0.0
    """The part of the state that was to be fetched when it was begun to be kept."""

    def missing(self, now: float) -> float:
        """Return the part of the state that is missing."""
        if self.kept:
            return 0.0 if now >= self.ready else self.lacks
        return min(1.0, self.lacks * (self.until < self.ready) + NEW_AN_HOUR * (now - self.until) / 3600)


@dataclass(slots=True)
class Member:
    """A node: whether it is up, is to go, and counts as lost or gone by now."""

    rack: str
    is_up: bool = True
    is_draining: bool = False
    is_silent: bool = False
    is_gone: bool = False
    left: int = 0
    """The number of times that it has left: what was to be found out about an earlier time is no longer true."""
    busy_until: float = 0.0
    soon_until: float = 0.0
    """Until when it looks more often."""


@dataclass(slots=True)
class Found:
    """The outcome of a day: partitions that moved for want of their node, those that waited for a fetch then, and bytes.

    ``ahead`` have moved when they had been fetched: their node was to go, and still there.
    """

    moved: Counter[str] = field(default_factory=Counter)
    ahead: Counter[str] = field(default_factory=Counter)
    waited: Counter[str] = field(default_factory=Counter)
    waited_bytes: float = 0.0
    ahead_bytes: float = 0.0
    standby_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The fleet's shape: the number of queries, that of standby copies of each partition, and bytes that a node fetches.

    ``looks_soon``: a standby that has found a change looks sooner for the next ones.
    """

    standbys: int = 1
    queries: int = 1
    fetched_a_second: float = FETCHED_A_SECOND
    looks_soon: bool = True

    @property
    def partitions(self) -> int:
        """The number of partitions of each query."""
        return PARTITIONS // self.queries


class Model:
    """The fleet. Times are in seconds since the start."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        self.now = 0.0
        self.shape = shape
        self.found = Found()
        self.members = {f"node{number:03}": Member(f"rack{number % RACKS:02}") for number in range(NODES)}
        self.running = [assign(_query(query), shape.partitions, self._cores(), {}) for query in range(shape.queries)]
        self.copies: dict[tuple[int, int], dict[str, Copy]] = {
            (query, number): {node: Copy(0.0)}
            for query, placed in enumerate(self.running)
            for number, node in enumerate(placed)
        }
        self._chance = random.Random(seed)
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ring = Ring(self.members)
        self._cover(self.copies)

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heappush(self._events, (seconds, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let happen what happens until then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heappop(self._events)
            action()
        self.now = until

    def lose(self, names: Iterable[str], why: str, *, with_disks: bool) -> None:
        """Let nodes be lost at once. Their partitions go elsewhere."""
        at_work = {node for placed in self.running for node in placed}
        for name in names:
            member = self.members[name]
            member.is_up = False
            member.left += 1
            for copies in self.copies.values():
                if name in copies and with_disks:
                    del copies[name]
                elif name in copies:
                    self._abandon(copies[name])
            silence = _OVERDUE_SECONDS if name in at_work else _SILENT_SECONDS
            since_word = self._chance.uniform(0, _WORD_SECONDS)
            self.at(self.now + silence - since_word, partial(self._fall_silent, name, member.left))
            self.at(self.now + _GONE_SECONDS, partial(self._leave_ring, name, member.left))
        self._place(why)

    def drain(self, names: Iterable[str], why: str) -> None:
        """Let nodes be drained: their partitions move."""
        names = list(names)
        for name in names:
            self.members[name].is_draining = True
        self._place(why)
        self._cover_around(names)

    def come_back(self, names: Iterable[str]) -> None:
        """Let nodes be there again, with what is on their disks."""
        names = list(names)
        for name in names:
            member = self.members[name]
            member.is_up, member.is_draining, member.is_silent, member.is_gone = True, False, False, False
            member.left += 1
        self._ring = Ring(name for name, member in self.members.items() if not member.is_gone)
        self._place("balance")
        self._cover_around(names)

    def uncovered(self) -> int:
        """Return the number of partitions without a complete copy on another node that is up."""
        return sum(
            not any(
                node != self.running[query][number] and self.members[node].is_up and copy.kept and copy.ready <= self.now
                for node, copy in copies.items()
            )
            for (query, number), copies in self.copies.items()
        )

    def loads(self) -> tuple[float, float]:
        """Return the fewest and the most partitions of the nodes that take any, as parts of their share."""
        loads = Counter(node for placed in self.running for node in placed)
        names = [name for name, member in self.members.items() if member.is_up and not member.is_draining]
        share = PARTITIONS / len(names)
        return min(loads[name] for name in names) / share, max(loads[name] for name in names) / share

    def _cores(self) -> dict[str, int]:
        return {name: CORES for name, member in self.members.items() if member.is_up and not member.is_draining}

    def _fall_silent(self, name: str, left: int) -> None:
        if self.members[name].left == left:
            self.members[name].is_silent = True
            self._cover_around([name])

    def _leave_ring(self, name: str, left: int) -> None:
        if self.members[name].left == left:
            around = self._ring.before(name)
            self.members[name].is_gone = True
            self._ring = Ring(name for name, member in self.members.items() if not member.is_gone)
            self._cover_around([name], around)

    def _place(self, why: str) -> None:
        """Let the drivers place all partitions anew."""
        cores, changed = self._cores(), []
        for query, before in enumerate(self.running):
            held = {number: self._held(query, number, before[number]) for number in range(self.shape.partitions)}
            current = {number: node for number, node in enumerate(before) if node in cores}
            placed = assign(_query(query), self.shape.partitions, cores, held, current)
            for number, (old, new) in enumerate(zip(before, placed, strict=True)):
                if old != new:
                    self._move((query, number), old, new, why)
                    changed.append((query, number))
            self.running[query] = placed
        self._cover(changed)

    def _held(self, query: int, number: int, holder: str) -> dict[str, Held]:
        found = {}
        for node, copy in self.copies[query, number].items():
            missing = 0.0 if node == holder else copy.missing(self.now)
            version = self.now if copy.kept and not missing else copy.until
            missing_bytes = int(STATE_BYTES * missing) if copy.kept and node != holder else None
            found[node] = Held(int(version), int(STATE_BYTES * (1 - missing)), node == holder, missing_bytes)
        return found

    def _move(self, partition: tuple[int, int], old: str, new: str, why: str) -> None:
        copies, member = self.copies[partition], self.members[old]
        missing = copies[new].missing(self.now) if new in copies else 1.0
        if member.is_up:
            self.found.ahead_bytes += missing * STATE_BYTES
        if member.is_up and member.is_draining:
            self.found.moved[why] += 1
            self.found.ahead[why] += missing > 0
        elif not member.is_up:
            self.found.moved[why] += 1
            self.found.waited_bytes += missing * STATE_BYTES
            self.found.waited[why] += missing > 0
        if old in copies:
            self._abandon(copies[old])
        copies[new] = Copy(self.now)

    def _abandon(self, copy: Copy) -> None:
        if copy.kept:
            copy.kept, copy.until = False, self.now

    def _cover_around(self, names: Iterable[str], holders: Iterable[str] = ()) -> None:
        """Let the nodes before these on the ring, whose copies they may keep, find standbys anew."""
        around = {*names, *holders, *(before for name in names for before in self._ring.before(name))}
        self._cover(
            (query, number)
            for query, placed in enumerate(self.running)
            for number, node in enumerate(placed)
            if node in around
        )

    def _cover(self, partitions: Iterable[tuple[int, int]]) -> None:
        """Let each partition's standbys be found, and fetch what they miss once they have noticed."""
        if not self.shape.standbys:
            return
        fleets: dict[str, Fleet] = {}
        assignments: dict[tuple[str, int], QueryAssignment] = {}
        looks = {name: self._next_look(member) for name, member in self.members.items()}
        for query, number in partitions:
            holder = self.running[query][number]
            if holder not in fleets:
                fleets[holder] = Fleet(map(self._node, [holder, *self._ring.after(holder)]), self.shape.standbys)
            if (holder, query) not in assignments:
                assignments[holder, query] = fleets[holder].query(_query(query))
            standbys = assignments[holder, query].standbys(number, holder)
            copies = self.copies[query, number]
            for node, copy in copies.items():
                if node != holder and node not in standbys:
                    self._abandon(copy)
            for node in standbys:
                if self.members[node].is_up and not (node in copies and copies[node].kept):
                    self._fetch(copies, node, self.now + looks[node])

    def _next_look(self, member: Member) -> float:
        """Return in how many seconds a member knows what changes now."""
        is_soon = self.shape.looks_soon and self.now < member.soon_until
        return _TOLD_SECONDS + self._chance.uniform(0, _SOON_SECONDS if is_soon else _LOOK_SECONDS)

    def _fetch(self, copies: dict[str, Copy], node: str, noticed: float) -> None:
        missing = copies[node].missing(noticed) if node in copies else 1.0
        member = self.members[node]
        member.soon_until = noticed + _SOON_LOOKS * _SOON_SECONDS
        member.busy_until = max(member.busy_until, noticed) + missing * STATE_BYTES / self.shape.fetched_a_second
        copies[node] = Copy(member.busy_until, lacks=missing)
        self.found.standby_bytes += missing * STATE_BYTES

    def _node(self, name: str) -> Node:
        member = self.members[name]
        return Node(name, CORES, member.rack, not (member.is_draining or member.is_silent))


def _query(number: int) -> str:
    return f"file:/mnt/holdfast/checkpoints/query{number}"
