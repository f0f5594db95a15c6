"""Reading what nodes have told the stores: one LIST, and a GET for each object that has changed since the last time.

An object whose node has been silent for long is left out. Ages are by the store's own times, against the newest
object there; a clock that is wrong here, or a time in the future that somebody has set, does not matter. Objects that
are not what they should be (too large, damaged, of a stranger's making) are left out too, and named in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import trio

from holdfast.config import HoldingsSection
from holdfast.errors import HoldfastError, ObjectChangedError, ObjectMissingError
from holdfast.holdings.publishing import REFRESHES_UNCHANGED, Publishing
from holdfast.holdings.report import DIRECTORY, LARGEST_BYTES, BadReportError, NodeReport, decoded
from holdfast.remote import PRIVATE, ObjectInfo
from holdfast.transfer import RemoteAccess

_MISSED_REFRESHES = 3
_MOST_NODES = 1000
_MOST_BYTES = 64 * 2**20
"""The limit of bytes in all objects of a store together: beyond it, the oldest are not read."""
_SECONDS = 5.0
_log = logging.getLogger("holdfast.holdings")


@dataclass(frozen=True, slots=True)
class Told:
    """A node's report of one zone, and when it was written, in seconds since the epoch by the store's clock."""

    zone: str
    report: NodeReport
    written: float
    is_this_node: bool


@dataclass(frozen=True, slots=True)
class Gathered:
    """The reports that could be read; ``problems`` has a sentence for each store that could not be asked."""

    told: list[Told]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Gathering:
    """Reads from ``stores``, by zone; this node's own report comes from ``publishing``."""

    publishing: Publishing
    stores: Mapping[str, RemoteAccess]
    section: HoldingsSection
    clock: Callable[[], float] = time.time
    _read: dict[tuple[str, str], tuple[str, NodeReport | None]] = field(default_factory=dict, init=False)

    async def gather(self, zones: list[str], *, all_nodes: bool) -> Gathered:
        """Return this node's report of each of ``zones``, and with ``all_nodes`` what the others have told."""
        gathered = Gathered([], [])
        for zone in zones:
            gathered.told.append(Told(zone, await self.publishing.report(zone), self.clock(), is_this_node=True))
        if all_nodes:
            async with trio.open_nursery() as nursery:
                for zone in zones:
                    nursery.start_soon(self._gather_zone, zone, gathered)
        return gathered

    async def _gather_zone(self, zone: str, gathered: Gathered) -> None:
        access = self.stores[zone]
        problem = f"{zone}: the store does not answer within {_SECONDS:g} s; the other nodes' holdings are not known"
        with trio.move_on_after(_SECONDS):
            try:
                gathered.told.extend(await self._others(zone, access))
                problem = ""
            except HoldfastError as error:
                problem = f"{zone}: {error}; the other nodes' holdings are not known"
        if problem:
            gathered.problems.append(problem)

    async def _others(self, zone: str, access: RemoteAccess) -> list[Told]:
        listing = await access.list_directory(f"{PRIVATE}/{DIRECTORY}", retry=False)
        mine = f"{PRIVATE}/{await self.publishing.object_name()}"
        infos = self._alive(list(listing.objects.values()))
        found: list[Told] = []

        async def read(info: ObjectInfo) -> None:
            report = await self._report(zone, access, info)
            if report is not None:
                found.append(Told(zone, report, info.modified_ns / 1e9, is_this_node=False))

        async with trio.open_nursery() as nursery:
            for info in infos:
                if info.key != mine:
                    nursery.start_soon(read, info)
        self._forget(zone, {info.key for info in infos})
        return sorted(found, key=lambda told: told.report.node)

    def _alive(self, infos: list[ObjectInfo]) -> list[ObjectInfo]:
        """Return the objects that are new and small enough, the newest first."""
        newest_first = sorted(infos, key=lambda info: -info.modified_ns)
        now_ns = int(self.clock() * 1e9)
        past = [info.modified_ns for info in newest_first if info.modified_ns <= now_ns]
        latest_ns = past[0] if past else now_ns
        oldest_ns = latest_ns - _MISSED_REFRESHES * REFRESHES_UNCHANGED * self.section.refresh_seconds * 1e9
        fresh = [info for info in newest_first if info.modified_ns >= oldest_ns and 0 < info.size_bytes <= LARGEST_BYTES]
        sizes = accumulate(info.size_bytes for info in fresh)
        return [info for info, size_bytes in zip(fresh, sizes, strict=True) if size_bytes <= _MOST_BYTES][:_MOST_NODES]

    async def _report(self, zone: str, access: RemoteAccess, info: ObjectInfo) -> NodeReport | None:
        known = self._read.get((zone, info.key))
        if known is not None and known[0] == info.etag:
            return known[1]
        report = None
        try:
            data = await access.small_object(info)
            report = await trio.to_thread.run_sync(decoded, data)
        except (ObjectMissingError, ObjectChangedError):  # it was just written again, or removed: the next look has it
            return None
        except BadReportError as problem:
            _log.warning("%s/%s is no report of a node's, and is ignored: %s", zone, info.key, problem)
        self._read[zone, info.key] = (info.etag, report)
        return report

    def _forget(self, zone: str, keys: set[str]) -> None:
        for known in [known for known in self._read if known[0] == zone and known[1] not in keys]:
            del self._read[known]
