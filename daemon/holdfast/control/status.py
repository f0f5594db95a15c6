"""The state of the daemon, its stores and its working directories."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Protocol

import trio

from holdfast import __version__
from holdfast.capacity import Room
from holdfast.control.messages import RemoteStatus, Status, WorkdirInfo
from holdfast.control.paths import Paths, shown
from holdfast.fs.foundation import Parts
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.index import EntryState
from holdfast.transfer import Fetcher
from holdfast.workdirs import Workdir, Workdirs

_MOST_UNSENT_SHOWN = 100


class MountFacts(Protocol):
    """Facts about the mount (``serving``)."""

    @property
    def data_mode(self) -> str:
        """How data is served: ``passthrough``, or ``daemon-io:`` and the reason."""

    @property
    def takeover(self) -> str:
        """Whether the mount outlives the daemon: ``takeover``, or ``no takeover:`` and the reason."""

    @property
    def requests(self) -> dict[str, int]:
        """The number of FUSE requests by kind."""


class StatusReport:
    """Reports, which change nothing."""

    def __init__(
        self,
        parts: Parts,
        nodes: NodeTable,
        room: Room,
        fetcher: Fetcher,
        paths: Paths,
        workdirs: Workdirs,
        mount: MountFacts,
    ) -> None:
        self._parts = parts
        self._nodes = nodes
        self._room = room
        self._fetcher = fetcher
        self._paths = paths
        self._workdirs = workdirs
        self._mount = mount
        self._started = time.monotonic()

    async def status(self) -> Status:
        """Return the state of the daemon."""
        usage = self._room.usage()
        unsent = await trio.to_thread.run_sync(self._unsent)
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
            remotes={
                name: RemoteStatus(
                    url=remote.access.store.url,
                    up=remote.access.health.up,
                    since=remote.access.health.since,
                    problem=remote.access.health.problem,
                    pending_deletions=len(remote.deletions),
                )
                for name, remote in self._parts.remotes.items()
            },
            cached_bytes=usage.cached_bytes,
            cached_files=self._parts.index.entries.count(),
            max_bytes=self._room.limits.max_bytes,
            free_bytes=usage.free_bytes,
            min_free_bytes=self._room.limits.min_free_bytes,
            known_nodes=len(self._nodes),
            fetching=len(self._fetcher.fetches()),
            unsent=[self._paths.absolute(path) for path in unsent[:_MOST_UNSENT_SHOWN]],
            unsent_files=len(unsent),
            quarantined=len(self._parts.store.quarantine.files()),
            counters=self._parts.counters.as_dict(),
            not_configured=dict(Counter(shown(path.partition(b"/")[0]) for path in homeless)),
        )

    def workdirs(self) -> list[WorkdirInfo]:
        """Return all working directories."""
        return [self.workdir(workdir) for workdir in self._workdirs.all()]

    def workdir(self, workdir: Workdir) -> WorkdirInfo:
        """Return one working directory as a message."""
        record = workdir.record
        path = self._paths.absolute(workdir.path)
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
        )

    def _unsent(self) -> list[bytes]:
        entries = (entry for _, entry in self._parts.index.entries.scan())
        unsent = (entry for entry in entries if entry.state is EntryState.DIRTY and not entry.digest)  # else: only open
        return [entry.path for entry in unsent if self._is_to_be_sent(entry.path)]

    def _is_to_be_sent(self, path: bytes) -> bool:
        place = self._parts.zones.place_of(path.rpartition(b"/")[0])
        return place is None or place.zone.sends
