"""Reading what nodes have told the stores: one LIST, and a GET for each object that has changed since the last time.

A question about all nodes costs as much as there are nodes; it is asked when a driver starts, or a person looks. What a
daemon asks all the time is about its neighbours on the ring alone, and more rarely in a larger fleet: so what that costs a
node does not grow with the fleet.

An object whose node has been silent for long is left out. Ages are by the store's own times, against the newest
object there; a clock that is wrong here, or a time in the future that somebody has set, does not matter. Objects that
are not what they should be (too large, damaged, of a stranger's making) are left out too, and named in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import trio

from holdfast.config import HoldingsSection
from holdfast.errors import HoldfastError, ObjectChangedError, ObjectMissingError
from holdfast.holdings.known_reports import KnownReports
from holdfast.holdings.publishing import REFRESHES_UNCHANGED, Publishing
from holdfast.holdings.report import DIRECTORY, LARGEST_BYTES, BadReportError, NodeReport, decoded
from holdfast.holdings.ring import Ring
from holdfast.remote import PRIVATE, ObjectInfo
from holdfast.transfer import RemoteAccess
from holdfast.transfer.several_at_once import for_each

_MISSED_REFRESHES = 3
_MOST_NODES = 10_000
_MOST_BYTES = 64 * 2**20
"""The limit of bytes in all objects of a store together, as they are there: beyond it, the oldest are not read."""
_READ_AT_ONCE, _UNPACKED_AT_ONCE = 32, 4
"""The numbers of reports that are read, and unpacked, at once: one may take a few MiB before it is known to be kept."""
_SECONDS = 5.0
_REFRESHES_A_PAGE = 2
"""The multiple of ``refresh_seconds`` for which a page of the listing, a request, is good."""
_NAMES_A_PAGE = 1000
_SOONER = 4
_log = logging.getLogger("holdfast.holdings")


@dataclass(frozen=True, slots=True)
class Told:
    """A node's report of one zone, and when it was written, in seconds since the epoch by the store's clock.

    ``name`` is the name of its object below ``.holdfast/nodes``.
    """

    zone: str
    name: str
    report: NodeReport
    written: float
    is_this_node: bool


@dataclass(frozen=True, slots=True)
class Gathered:
    """The reports that could be read; ``problems`` has a sentence for each store that could not be asked in time."""

    told: list[Told]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The reports of this node, which is called ``name``, and its neighbours on the ``ring``, by name.

    They are ``good_seconds`` from ``asked`` on (trio's time).
    """

    name: str
    ring: Ring
    told: Mapping[str, Told]
    asked: float
    good_seconds: float

    def candidates(self, name: str) -> list[Told]:
        """Return those who may keep copies of what ``name`` holds, which is a node before this one on the ring."""
        return [self.told[each] for each in self.ring.after(name) if each in self.told]


@dataclass(frozen=True, slots=True)
class Gathering:
    """Reads from ``stores``, by zone; this node's own report comes from ``publishing``."""

    publishing: Publishing
    stores: Mapping[str, RemoteAccess]
    section: HoldingsSection
    clock: Callable[[], float] = time.time
    _known: dict[str, KnownReports] = field(default_factory=dict, init=False)
    """The reports that were read, by zone."""
    _unpacking: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(_UNPACKED_AT_ONCE), init=False)
    _neighbours: dict[str, Neighbourhood] = field(default_factory=dict, init=False)

    async def gather(self, zones: list[str], *, all_nodes: bool) -> Gathered:
        """Return this node's report of each of ``zones``, and with ``all_nodes`` what the others have told.

        What can't be read again within some seconds is returned as it was the last time.
        """
        gathered = Gathered([await self._own(zone) for zone in zones], [])
        if all_nodes:
            async with trio.open_nursery() as nursery:
                for zone in zones:
                    nursery.start_soon(self._gather_zone, zone, gathered)
        return gathered

    async def neighbours(self, zone: str, *, soon: bool = False) -> Neighbourhood:
        """Return the reports of this node's neighbours on the ring of ``zone``. Raises ``HoldfastError``.

        What can't be read again is as it was the last time, or missing. The store is asked at most every other
        ``refresh_seconds`` for each thousand nodes, however often this is called; four times as often if ``soon``.
        """
        known = self._neighbours.get(zone)
        if known is not None and trio.current_time() < known.asked + known.good_seconds / (_SOONER if soon else 1):
            return known
        asked, own = trio.current_time(), await self._own(zone)
        infos = await self._alive(zone)
        ring = Ring({own.name, *infos})
        found: dict[str, Told] = {}
        for problem in await self._read_changed(zone, [infos[name] for name in ring.neighbours(own.name)], found):
            _log.info("%s: what a neighbour holds can't be read now: %s", zone, problem)
        self._known_of(zone).keep({info.key for info in infos.values()})
        found[own.name] = own
        pages = -(-len(ring) // _NAMES_A_PAGE)
        good_seconds = pages * _REFRESHES_A_PAGE * self.section.refresh_seconds
        self._neighbours[zone] = Neighbourhood(own.name, ring, found, asked, good_seconds)
        return self._neighbours[zone]

    async def _own(self, zone: str) -> Told:
        name = _name(await self.publishing.object_name())
        return Told(zone, name, await self.publishing.report(zone), self.clock(), is_this_node=True)

    async def _gather_zone(self, zone: str, gathered: Gathered) -> None:
        problem = f"{zone}: the store does not answer within {_SECONDS:g} s; not all of the other nodes' holdings are known"
        found: dict[str, Told] = {}
        with trio.move_on_after(_SECONDS):
            try:
                await self._gather_others(zone, found)
                problem = ""
            except HoldfastError as error:
                problem = f"{zone}: {error}; not all of the other nodes' holdings are known"
        gathered.told.extend(sorted(found.values(), key=lambda told: told.report.node))
        if problem:
            gathered.problems.append(problem)

    async def _gather_others(self, zone: str, found: dict[str, Told]) -> None:
        """Put what the other nodes have told into ``found``. Raises the first problem at the end."""
        infos = await self._alive(zone)
        infos.pop(_name(await self.publishing.object_name()), None)
        problems = await self._read_changed(zone, infos.values(), found)
        self._known_of(zone).keep({info.key for info in infos.values()})
        if problems:
            raise problems[0]

    async def _read_changed(self, zone: str, infos: Collection[ObjectInfo], found: dict[str, Told]) -> list[HoldfastError]:
        """Put these reports into ``found``: at first as they are known, then, in turn, those that have changed since.

        Returns what kept one from being read; it takes none of the others away.
        """
        problems: list[HoldfastError] = []

        async def read(info: ObjectInfo) -> None:
            try:
                report = await self._report(zone, info)
            except HoldfastError as problem:
                problems.append(problem)
                return
            if report is not None:
                found[_name(info.key)] = _told(zone, info, report)
            else:
                found.pop(_name(info.key), None)

        for info in infos:
            known = self._known_of(zone).get(info.key)
            if known is not None and known.report is not None:
                found[_name(info.key)] = _told(zone, info, known.report)
        await for_each(infos, read, _READ_AT_ONCE)
        return problems

    async def _alive(self, zone: str) -> dict[str, ObjectInfo]:
        """Ask for the objects of ``zone``; return those that are new and small enough by name, the newest first."""
        listing = await self.stores[zone].list_directory(f"{PRIVATE}/{DIRECTORY}", retry=False)
        newest_first = sorted(listing.objects.values(), key=lambda info: -info.modified_ns)
        now_ns = int(self.clock() * 1e9)
        past = [info.modified_ns for info in newest_first if info.modified_ns <= now_ns]
        latest_ns = past[0] if past else now_ns
        oldest_ns = latest_ns - _MISSED_REFRESHES * REFRESHES_UNCHANGED * self.section.refresh_seconds * 1e9
        fresh = [info for info in newest_first if info.modified_ns >= oldest_ns and 0 < info.size_bytes <= LARGEST_BYTES]
        sizes = accumulate(info.size_bytes for info in fresh)
        few = [info for info, size_bytes in zip(fresh, sizes, strict=True) if size_bytes <= _MOST_BYTES][:_MOST_NODES]
        return {_name(info.key): info for info in few}

    async def _report(self, zone: str, info: ObjectInfo) -> NodeReport | None:
        reports = self._known_of(zone)
        known = reports.get(info.key)
        if known is not None and known.etag == info.etag:
            return known.report
        try:
            data = await self.stores[zone].small_object(info)
            async with self._unpacking:
                report = await trio.to_thread.run_sync(decoded, data)
                return reports.put(info.key, info.etag, report)
        except (ObjectMissingError, ObjectChangedError):  # it was just written again, or removed: the next look has it
            return known.report if known is not None else None
        except BadReportError as problem:
            _log.warning("%s/%s is no report of a node's, and is ignored: %s", zone, info.key, problem)
        return reports.put(info.key, info.etag, None)

    def _known_of(self, zone: str) -> KnownReports:
        return self._known.setdefault(zone, KnownReports())


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _told(zone: str, info: ObjectInfo, report: NodeReport) -> Told:
    return Told(zone, _name(info.key), report, info.modified_ns / 1e9, is_this_node=False)
