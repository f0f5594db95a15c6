"""The state of the daemon, its stores and its working directories."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Protocol

import msgspec
import trio

from holdfast import __version__
from holdfast.capacity import Room
from holdfast.control.callers import Caller
from holdfast.control.messages import PublicStatus, RemoteStatus, Sample, Status, WorkdirInfo
from holdfast.control.paths import Paths
from holdfast.fs.foundation import Parts
from holdfast.fs.inodes.drain import Drain
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.quotas import Quotas
from holdfast.fs.writeback.unsent_files import UnsentFiles
from holdfast.holdings import Health, MountHealth, node_name
from holdfast.mount.covered_directory import Ground
from holdfast.problems import LONG_UNSENT
from holdfast.system.text import shown
from holdfast.telemetry import Histogram
from holdfast.transfer import Fetcher
from holdfast.workdirs import Workdir, Workdirs

_MOST_UNSENT_SHOWN = 100
_LONG_UNSENT_SECONDS = 900.0


class MountFacts(MountHealth, Protocol):
    """Facts about the mount (``serving``)."""

    @property
    def takeover(self) -> str:
        """``takeover`` if the mount outlives the daemon, else ``no takeover:`` and the reason."""

    @property
    def ground(self) -> Ground:
        """The directory below the mount."""

    @property
    def requests(self) -> dict[str, int]:
        """The number of FUSE requests by kind."""

    def durations(self) -> Histogram | None:
        """Return how long they took, all kinds together; None before the first."""


class StatusReport:
    """Reports on the daemon, and changes nothing."""

    def __init__(
        self,
        parts: Parts,
        nodes: NodeTable,
        room: Room,
        fetcher: Fetcher,
        unsent: UnsentFiles,
        drain: Drain,
        quotas: Quotas,
        paths: Paths,
        workdirs: Workdirs,
        mount: MountFacts,
        health: Health,
    ) -> None:
        self._parts = parts
        self._nodes = nodes
        self._room = room
        self._fetcher = fetcher
        self._unsent = unsent
        self._drain = drain
        self._quotas = quotas
        self._paths = paths
        self._workdirs = workdirs
        self._mount = mount
        self._health = health
        self._node = node_name(parts.config.holdings)
        self._started = time.monotonic()

    async def status(self) -> Status:
        """Return the state of the daemon."""
        usage = self._room.usage()
        disk, reserve = usage.disk, self._room.limits.reserve(usage.disk)
        unsent = await trio.to_thread.run_sync(self._unsent.below, b"")
        homeless = (path for path in unsent if self._parts.zones.place_of(path.partition(b"/")[0]) is None)
        return Status(
            pid=os.getpid(),
            version=__version__,
            mountpoint=self._paths.mountpoint,
            store=str(self._parts.store.path),
            data_mode=self._mount.data_mode,
            takeover=self._mount.takeover,
            kernel_requests=self._mount.requests,
            uptime_seconds=time.monotonic() - self._started,
            remotes={name: self._remote(name) for name in self._parts.remotes},
            cached_bytes=usage.cached_bytes,
            cached_files=self._parts.index.entries.count(),
            max_bytes=self._room.limits.max_bytes,
            free_bytes=disk.free_bytes,
            min_free_bytes=reserve.size_bytes,
            files=disk.files,
            free_files=disk.free_files,
            min_free_files=reserve.files,
            known_nodes=len(self._nodes),
            fetching=len(self._fetcher.fetches()),
            unsent=[self._paths.absolute(path) for path in unsent[:_MOST_UNSENT_SHOWN]],
            unsent_files=len(unsent),
            draining=self._drain.is_on,
            quarantined=len(self._parts.store.quarantine.files()),
            counters=self._parts.counters.as_dict(),
            mountpoint_protection=self._mount.ground.protection,
            hidden_files=self._mount.ground.hidden,
            not_configured=dict(Counter(shown(path.partition(b"/")[0]) for path in homeless)),
            node=self._node,
            problems=[*self._health.problems(), *await self._long_unsent(unsent)],
        )

    def sample(self) -> Sample:
        """Return what the counters say now. Cheap."""
        usage = self._room.usage()
        counters = self._parts.counters
        durations = self._mount.durations()
        return Sample(
            time=time.time(),
            hits=counters.hits,
            misses=counters.misses,
            bytes_fetched=counters.bytes_fetched,
            bytes_uploaded=counters.bytes_uploaded,
            requests=counters.requests.total(),
            files_evicted=counters.files_evicted,
            cached_bytes=usage.cached_bytes,
            free_bytes=usage.disk.free_bytes,
            fetching=len(self._fetcher.fetches()),
            operations=durations.total if durations else 0,
            latencies=durations.buckets if durations else [],
        )

    def public_status(self, caller: Caller) -> PublicStatus:
        """Return what ``caller`` may know, whoever it is. Cheap, because anybody may ask at any rate."""
        disk = self._room.usage().disk
        reserve = self._room.limits.reserve(disk)
        return PublicStatus(
            pid=os.getpid(),
            version=__version__,
            mountpoint=self._paths.mountpoint,
            data_mode=self._mount.data_mode,
            takeover=self._mount.takeover,
            uptime_seconds=time.monotonic() - self._started,
            remotes={
                name: msgspec.structs.replace(remote, problem=remote.problem and "control.sock tells why")
                for name in self._parts.remotes
                if self.may_search(caller, name)
                for remote in [self._remote(name)]
            },
            max_bytes=self._room.limits.max_bytes,
            free_bytes=disk.free_bytes,
            min_free_bytes=reserve.size_bytes,
            files=disk.files,
            free_files=disk.free_files,
            min_free_files=reserve.files,
            node=self._node,
            problems=[
                *self._health.of_stores(lambda name: self.may_search(caller, name), with_reasons=False),
                *self._health.of_node(),
            ],
        )

    async def _long_unsent(self, unsent: list[bytes]) -> list[str]:
        """Return a sentence if one of the files at these paths has been unsent for long."""
        oldest_ns = (await trio.to_thread.run_sync(self._unsent.totals)).oldest_ns if unsent else None
        if oldest_ns is None or time.time() - oldest_ns / 1e9 < _LONG_UNSENT_SECONDS:
            return []
        return [f"{LONG_UNSENT} for more than 15 minutes ('holdfast flush --all' says why)"]

    def _remote(self, name: str) -> RemoteStatus:
        remote = self._parts.remotes[name]
        health = remote.access.health
        return RemoteStatus(
            url=remote.access.store.url,
            up=health.up,
            since=health.since,
            problem=health.problem,
            pending_deletions=len(remote.deletions),
            refused_deletions=remote.deletions.refused,
        )

    def may_search(self, caller: Caller, zone: str) -> bool:
        """Say whether the caller may look into a zone."""
        root = self._parts.store.tree.stat(zone.encode())
        return caller.may_search(root.st_uid, root.st_gid, root.st_mode)

    async def workdirs(self, after: str, limit: int, owner: int | None) -> list[WorkdirInfo]:
        """Return up to ``limit`` working directories after the path ``after``, by path; of ``owner`` only, if given."""
        found: list[WorkdirInfo] = []
        beyond = self._paths.relative(after) if after else b""
        for workdir in self._workdirs.listed(beyond, owner):
            found.append(self.workdir(workdir))
            if len(found) == limit:
                break
            await trio.lowlevel.checkpoint_if_cancelled()
        return found

    def workdir(self, workdir: Workdir) -> WorkdirInfo:
        """Return one working directory as a message."""
        record = workdir.record
        path = self._paths.absolute(workdir.path)
        usage = self._quotas.of(workdir.path)
        return WorkdirInfo(
            path=path,
            role=record.role,
            id=record.resource_id,
            holder=workdir.holder,
            created=record.created_seconds,
            acquired=record.acquired_seconds,
            released=record.released_seconds or None,
            expires=workdir.expires_seconds,
            acquisitions=record.acquisitions,
            lease_file=f"{path}/.lease",
            used_bytes=usage.used.size_bytes if usage else None,
            max_bytes=workdir.limit.size_bytes,
            used_files=usage.used.files if usage else None,
            max_files=workdir.limit.files,
        )
