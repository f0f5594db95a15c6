"""The state of the daemon, its stores and its working directories."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from holdfast import __version__
from holdfast.control.callers import Caller
from holdfast.control.messages import PublicStatus, RemoteStatus, Sample, Status, WorkdirInfo
from holdfast.control.other_disks import other_disks
from holdfast.control.paths import Paths
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.session import ServedMount
from holdfast.fs.writeback.unsent_files import UnsentFiles
from holdfast.holdings import Health
from holdfast.problems import LONG_UNSENT
from holdfast.system.text import shown
from holdfast.workdirs import Workdir, Workdirs

_MOST_UNSENT_SHOWN = 100
_LONG_UNSENT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Reports on the daemon, and changes nothing."""

    base: Foundation
    unsent: UnsentFiles
    paths: Paths
    workdir_service: Workdirs
    mount: ServedMount
    health: Health
    node: str
    started: float = field(default_factory=time.monotonic)

    async def status(self) -> Status:
        """Return the state of the daemon."""
        base, parts = self.base, self.base.parts
        unsent = await trio.to_thread.run_sync(self.unsent.below, b"")
        homeless = (path for path in unsent if parts.zones.place_of(path.partition(b"/")[0]) is None)
        return Status(
            **self._for_all(),
            store=str(parts.store.path),
            kernel_requests=self.mount.session.requests,
            remotes={name: self._remote(name) for name in parts.remotes},
            cached_bytes=parts.index.entries.cached_bytes,
            cached_files=parts.index.entries.count(),
            known_nodes=len(base.nodes),
            fetching=len(base.fetcher.fetches()),
            unsent=[self.paths.absolute(path) for path in unsent[:_MOST_UNSENT_SHOWN]],
            unsent_files=len(unsent),
            draining=base.drain.is_on,
            quarantined=len(parts.store.quarantine.files()),
            counters=parts.counters.as_dict(),
            mountpoint_protection=self.mount.session.ground.protection,
            hidden_files=self.mount.session.ground.hidden,
            other_disks=other_disks(parts.store, base.rooms),
            not_configured=dict(Counter(shown(path.partition(b"/")[0]) for path in homeless)),
            problems=[*self.health.problems(), *await self._long_unsent(unsent)],
        )

    def sample(self) -> Sample:
        """Return what the counters say now. Cheap."""
        disk = self.base.rooms.first.usage().disk
        counters = self.base.parts.counters
        durations = self.mount.session.observer.times.together()
        return Sample(
            time=time.time(),
            hits=counters.hits,
            misses=counters.misses,
            bytes_fetched=counters.bytes_fetched,
            bytes_uploaded=counters.bytes_uploaded,
            requests=counters.requests.total(),
            files_evicted=counters.files_evicted,
            cached_bytes=self.base.parts.index.entries.cached_bytes,
            free_bytes=disk.free_bytes,
            fetching=len(self.base.fetcher.fetches()),
            operations=durations.total if durations else 0,
            latencies=durations.buckets if durations else [],
        )

    def public_status(self, caller: Caller) -> PublicStatus:
        """Return what ``caller`` may know, whoever it is. Cheap, because anybody may ask at any rate."""
        return PublicStatus(
            **self._for_all(),
            remotes={
                name: msgspec.structs.replace(remote, problem=remote.problem and "control.sock tells why")
                for name in self.base.parts.remotes
                if self.may_search(caller, name)
                for remote in [self._remote(name)]
            },
            problems=[
                *self.health.of_stores(lambda name: self.may_search(caller, name), with_reasons=False),
                *self.health.of_node(),
            ],
        )

    def _for_all(self) -> dict[str, Any]:
        """Return the fields of a status that are the same whoever asks."""
        room = self.base.rooms.first
        limits, disk = room.limits, room.usage().disk
        reserve = limits.reserve(disk)
        return {
            "pid": os.getpid(),
            "version": __version__,
            "mountpoint": self.paths.mountpoint,
            "data_mode": self.mount.session.data_mode,
            "takeover": self.mount.takeover,
            "uptime_seconds": time.monotonic() - self.started,
            "max_bytes": limits.max_bytes,
            "free_bytes": disk.free_bytes,
            "min_free_bytes": reserve.size_bytes,
            "files": disk.files,
            "free_files": disk.free_files,
            "min_free_files": reserve.files,
            "node": self.node,
        }

    async def _long_unsent(self, unsent: list[bytes]) -> list[str]:
        """Return a sentence if one of the files at these paths has been unsent for long."""
        oldest_ns = (await trio.to_thread.run_sync(self.unsent.totals)).oldest_ns if unsent else None
        if oldest_ns is None or time.time() - oldest_ns / 1e9 < _LONG_UNSENT_SECONDS:
            return []
        return [f"{LONG_UNSENT} for more than 15 minutes ('holdfast flush --all' says why)"]

    def _remote(self, name: str) -> RemoteStatus:
        remote = self.base.parts.remotes[name]
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
        """Say whether the caller may look into a zone.

        Without ``mount.allow_other`` the kernel lets nobody but the daemon's user into the mount.
        """
        if not (self.base.parts.config.mount.allow_other or caller.is_root or caller.uid == os.geteuid()):
            return False
        root = self.base.parts.store.tree.stat(zone.encode())
        return caller.may_search(root.st_uid, root.st_gid, root.st_mode)

    async def workdirs(self, after: str, limit: int, owner: int | None) -> list[WorkdirInfo]:
        """Return up to ``limit`` working directories after the path ``after``, by path; of ``owner`` only, if given."""
        beyond = self.paths.relative(after) if after else b""
        return [self.workdir(workdir) for workdir in await self.workdir_service.some(beyond, owner, limit)]

    def workdir(self, workdir: Workdir) -> WorkdirInfo:
        """Return one working directory as a message."""
        record = workdir.record
        path = self.paths.absolute(workdir.path)
        usage = self.base.quotas.of(workdir.path)
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
            volume=record.volume,
        )
