"""The page of metrics: what is counted where it happens, put together with the figures of the moment.

``telemetry.metrics`` says what each metric means. The page for everybody has only those that tell nothing of what users do.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from holdfast import __version__
from holdfast.capacity import Rooms
from holdfast.control.other_disks import other_disks
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.session import Session
from holdfast.fs.writeback.unsent_files import Unsent, UnsentFiles
from holdfast.standbys import Standbys
from holdfast.telemetry import LoopLag, MetricsPage, metrics
from holdfast.transfer import Remote
from holdfast.workdirs import Workdirs

_PART_OF_TIME = 20
_FRESH_SECONDS = 5.0
_NS = 1_000_000_000
_STATM = Path("/proc/self/statm")
_STAT = Path("/proc/self/stat")
_BOOT = Path("/proc/stat")
_DESCRIPTORS = Path("/proc/self/fd")
_START_FIELD = 19  # starttime of proc_pid_stat(5), counted from the field after the name


class MetricsReport:
    """Writes the page, and changes nothing."""

    def __init__(
        self,
        base: Foundation,
        unsent: UnsentFiles,
        workdirs: Workdirs,
        session: Session,
        lag: LoopLag,
        standbys: Standbys,
    ) -> None:
        self._parts = base.parts
        self._base = base
        self._rooms: Rooms = base.rooms
        self._unsent = _Remembered(unsent.totals, Unsent(0, 0, None))
        self._workdirs = workdirs
        self._session = session
        self._lag = lag
        self._standbys = standbys
        self._started = _started()

    async def page(self) -> str:
        """Return all metrics."""
        unsent = await self._unsent.now()
        quarantined = await trio.to_thread.run_sync(self._parts.store.quarantine.sizes)
        page = MetricsPage()
        self._add_for_all(page, self._parts.remotes)
        self._add_daemon(page)
        await trio.lowlevel.checkpoint()
        self._add_operations(page)
        await trio.lowlevel.checkpoint()
        self._add_cache(page, quarantined)
        self._add_other_disks(page)
        self._add_unsent(page, unsent)
        self._add_stores(page)
        self._add_standbys(page)
        await self._add_workdirs(page)
        return page.text()

    def public_page(self, shown: Callable[[str], bool]) -> str:
        """Return the metrics for everybody, with the stores for which ``shown`` holds."""
        page = MetricsPage()
        self._add_for_all(page, {name: remote for name, remote in self._parts.remotes.items() if shown(name)})
        return page.text()

    def _add_for_all(self, page: MetricsPage, remotes: Mapping[str, Remote]) -> None:
        room = self._rooms.first
        limits, disk = room.limits, room.usage().disk
        reserve = limits.reserve(disk)
        page.add(metrics.BUILD_INFO, 1, __version__)
        page.add(metrics.PROCESS_START, self._started)
        page.add(metrics.CACHE_MAX, limits.max_bytes)
        page.add(metrics.DISK_FREE, disk.free_bytes)
        page.add(metrics.DISK_MIN_FREE, reserve.size_bytes)
        page.add(metrics.DISK_SIZE, disk.size_bytes)
        page.add(metrics.DISK_INODES, disk.files)
        if disk.files:
            page.add(metrics.DISK_FREE_INODES, disk.free_files)
            page.add(metrics.DISK_MIN_FREE_INODES, reserve.files)
        for name, remote in remotes.items():
            page.add(metrics.STORE_UP, int(remote.access.health.up), name)

    def _add_daemon(self, page: MetricsPage) -> None:
        page.add(metrics.PROCESS_CPU, _cpu_seconds())
        page.add(metrics.PROCESS_MEMORY, _resident_bytes())
        page.add(metrics.PROCESS_FDS, _open_descriptors())
        page.add(metrics.PROCESS_MAX_FDS, _most_descriptors())
        page.add(metrics.STARTS, self._parts.index.run)
        page.add(metrics.LOOP_LAG, self._lag.histogram())
        page.add(metrics.PASSTHROUGH, int(self._session.data_mode == "passthrough"))
        page.add(metrics.PASSTHROUGH_POSSIBLE, int(self._session.passthrough_possible))
        page.add(metrics.DRAINING, int(self._base.drain.is_on))
        for kind, count in sorted(self._parts.events.counts.items()):
            page.add(metrics.EVENTS, count, kind)
        for field, metric in metrics.OF_COUNTERS.items():
            page.add(metric, getattr(self._parts.counters, field))

    def _add_operations(self, page: MetricsPage) -> None:
        for each in self._session.observer.times.all():
            page.add(metrics.OPERATIONS, each.durations, each.operation, each.zone)
        turns = self._session.turns._asdict()
        for kind, each in turns.items():
            page.add(metrics.RUNNING, each.running, kind)
        for kind, each in turns.items():
            page.add(metrics.WAITING, each.waiting, kind)
        page.add(metrics.KNOWN_NODES, len(self._base.nodes))

    def _add_cache(self, page: MetricsPage, quarantined: list[int]) -> None:
        page.add(metrics.CACHE_BYTES, self._parts.index.entries.cached_bytes)
        page.add(metrics.CACHE_FILES, self._parts.index.entries.count())
        page.add(metrics.DISK_TAKES_WRITES, int(self._parts.index.takes_writes))
        page.add(metrics.FETCHING, len(self._base.fetcher.fetches()))
        page.add(metrics.QUARANTINE_FILES, len(quarantined))
        page.add(metrics.QUARANTINE_BYTES, sum(quarantined))

    def _add_other_disks(self, page: MetricsPage) -> None:
        disks = other_disks(self._parts.store, self._rooms)
        for disk in disks:
            page.add(metrics.OTHER_DISK_UP, int(not disk.problem), disk.path)
        in_use = [disk for disk in disks if not disk.problem]
        with_inodes = [disk for disk in in_use if disk.files]
        for metric, field, shown in (
            (metrics.OTHER_DISK_FREE, "free_bytes", in_use),
            (metrics.OTHER_DISK_MIN_FREE, "min_free_bytes", in_use),
            (metrics.OTHER_DISK_SIZE, "size_bytes", in_use),
            (metrics.OTHER_DISK_INODES, "files", in_use),
            (metrics.OTHER_DISK_FREE_INODES, "free_files", with_inodes),
            (metrics.OTHER_DISK_MIN_FREE_INODES, "min_free_files", with_inodes),
            (metrics.OTHER_DISK_CACHE_BYTES, "cached_bytes", in_use),
            (metrics.OTHER_DISK_WORKDIRS, "workdirs", in_use),
        ):
            for disk in shown:
                page.add(metric, getattr(disk, field), disk.path)

    def _add_unsent(self, page: MetricsPage, unsent: Unsent) -> None:
        age = 0.0 if unsent.oldest_ns is None else max(0.0, (time.time_ns() - unsent.oldest_ns) / _NS)
        page.add(metrics.UNSENT_FILES, unsent.files)
        page.add(metrics.UNSENT_BYTES, unsent.size_bytes)
        page.add(metrics.UNSENT_AGE, age)
        for name, remote in self._parts.remotes.items():
            page.add(metrics.PENDING_DELETIONS, len(remote.deletions), name)

    def _add_stores(self, page: MetricsPage) -> None:
        for name, remote in self._parts.remotes.items():
            for each in remote.access.request_times.all():
                page.add(metrics.STORE_REQUESTS, each.durations, name, each.kind, each.result)
        for name, remote in self._parts.remotes.items():
            page.add(metrics.STORE_WAITING, remote.access.waiting, name)

    def _add_standbys(self, page: MetricsPage) -> None:
        figures = self._standbys.figures()
        for metric, field in metrics.OF_STANDBYS.items():
            for name, of_store in figures.items():
                page.add(metric, getattr(of_store, field), name)

    async def _add_workdirs(self, page: MetricsPage) -> None:
        workdirs = await self._workdirs.some()
        held = sum(workdir.holder is not None for workdir in workdirs)
        page.add(metrics.WORKDIRS, held, "held")
        page.add(metrics.WORKDIRS, len(workdirs) - held, "released")


class _Remembered:
    """A figure that takes long to read: a thread reads it for a small part of the time, however often it is asked for."""

    def __init__(self, read: Callable[[], Unsent], before: Unsent) -> None:
        self._read = read
        self._found = before
        self._lock = trio.Lock()
        self._next = 0.0

    async def now(self) -> Unsent:
        """Return what was found last, or look again if that was long ago."""
        async with self._lock:
            began = trio.current_time()
            if began >= self._next:
                self._found = await trio.to_thread.run_sync(self._read)
                now = trio.current_time()
                self._next = now + max(_FRESH_SECONDS, _PART_OF_TIME * (now - began))
        return self._found


def _resident_bytes() -> int:
    """Return how much memory of this process is resident."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds() -> float:
    """Return the processor time taken, in user and system mode."""
    times = os.times()
    return times.user + times.system


def _started() -> float:
    """Return when the process started, in seconds since the epoch."""
    ticks = int(_STAT.read_text().rpartition(")")[2].split()[_START_FIELD])
    booted = next(line.split()[1] for line in _BOOT.read_text().splitlines() if line.startswith("btime "))
    return int(booted) + ticks / os.sysconf("SC_CLK_TCK")


def _open_descriptors() -> int:
    """Return how many descriptors are open."""
    return _DESCRIPTORS.stat().st_size or len(os.listdir(_DESCRIPTORS))  # 0 before Linux 6.2


def _most_descriptors() -> int:
    """Return how many descriptors may be open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
