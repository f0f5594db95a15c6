"""Queries: the daemon's state, and the state of files with the reasons for it."""

from __future__ import annotations

import os
import stat as stat_module
import time
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import trio

from holdfast import __version__
from holdfast.control.messages import EntryInfo, EntryPage, Explanation, RemoteStatus, Status, WorkdirInfo
from holdfast.control.paths import Paths, shown
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.lookup import Found
from holdfast.index import Entry, EntryState
from holdfast.workdirs import Workdir, Workdirs
from holdfast.zones import NameKind, ZonePath

_STATES = {
    EntryState.CLEAN: "cached",
    EntryState.DIRTY: "unsent",
    EntryState.UPLOADING: "uploading",
    EntryState.LOCAL: "local",
}
_TYPES = {
    stat_module.S_IFREG: "file",
    stat_module.S_IFDIR: "directory",
    stat_module.S_IFLNK: "symlink",
    stat_module.S_IFIFO: "fifo",
    stat_module.S_IFSOCK: "socket",
}
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


class Inspector:
    """Queries, which change nothing."""

    def __init__(self, base: Foundation, files: FileSystem, paths: Paths, workdirs: Workdirs, mount: MountFacts) -> None:
        self._base = base
        self._parts = base.parts
        self._files = files
        self._paths = paths
        self._workdirs = workdirs
        self._mount = mount
        self._started = time.monotonic()

    async def status(self) -> Status:
        """Return the state of the daemon."""
        usage = self._base.room.usage()
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
            max_bytes=self._base.room.limits.max_bytes,
            free_bytes=usage.free_bytes,
            min_free_bytes=self._base.room.limits.min_free_bytes,
            known_nodes=len(self._base.nodes),
            fetching=len(self._base.fetcher.fetches()),
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

    async def page(self, path: str, after: str, limit: int) -> EntryPage:
        """Return up to ``limit`` entries of the directory ``path``, sorted by name, starting after ``after``."""
        async with self._paths.find(path) as directory:
            if not directory.node.is_directory:
                return EntryPage(entries=[await self.entry(path)], next=None)
            return await self._page(self._paths.relative(path), directory.node, os.fsencode(after), limit)

    async def _page(self, path: bytes, directory: Node, after: bytes, limit: int) -> EntryPage:
        wanted = [name for name in sorted(await self._files.listings.names(directory)) if name > after]
        end = min(limit, len(wanted))
        while end < len(wanted) and not _is_text(wanted[end - 1]):
            end += 1  # a page must end with a name that the next request can pass
        entries = []
        for name in wanted[:end]:
            found = self._files.listings.entry(directory, name)
            if found is not None:
                entries.append(self._describe(path, name, directory, found))
                self._base.nodes.release(found.node)
            await trio.lowlevel.checkpoint_if_cancelled()
        return EntryPage(entries=entries, next=shown(wanted[end - 1]) if end < len(wanted) else None)

    async def entry(self, path: str) -> EntryInfo:
        """Return what is known about ``path``."""
        async with self._paths.find(path) as found:
            directory, _, name = self._paths.relative(path).rpartition(b"/")
            return self._describe(directory, name, found.node.parent or found.node, found)

    async def why(self, path: str) -> Explanation:
        """Explain in sentences what ``path`` is, where its bytes are, and what an open would do."""
        info = await self.entry(path)
        return Explanation(path=info.path, reasons=list(_reasons(info)))

    def _describe(self, directory_path: bytes, name: bytes, directory: Node, found: Found) -> EntryInfo:
        place = self._base.directories.place(found.node if found.node.is_directory else directory)
        path = directory_path + b"/" + name if directory_path else name
        is_file = stat_module.S_ISREG(found.stat.st_mode)
        entry = self._parts.index.entries.get(found.node.backing) if found.node.backing and is_file else None
        cached = entry.name_at(path) if entry is not None else None
        known = self._base.view.listing(place).object(name) if is_file and place.zone.is_store else None
        in_store = place.zone.remote is not None and is_file
        return EntryInfo(
            path=self._paths.absolute(path),
            type=_TYPES.get(stat_module.S_IFMT(found.stat.st_mode), "device"),
            zone=place.zone.kind.value if not place.zone.is_store else str(place.zone.remote),
            state=self._state(place, name, found.node, entry, is_file),
            size_bytes=found.stat.st_size,
            modified=found.stat.st_mtime_ns / 1e9,
            kind=self._base.policy.kind_of(place, name).value if in_store and place.zone.sends else None,
            object=f"{self._base.view.remote_of(place.zone).access.store.url.rstrip('/')}/{shown(place.zone.key_of(path))}"
            if cached or known
            else None,
            etag=cached.etag if cached else known.etag if known else None,
            digest=f"xxh3-128:{entry.digest.hex()}" if entry is not None and entry.digest else None,
            used=entry.used_ns / 1e9 if entry is not None and entry.used_ns else None,
            pinned=self._parts.index.marks.is_pinned(path),
            open=found.node.opened is not None,
        )

    def _state(self, place: ZonePath, name: bytes, node: Node, entry: Entry | None, is_file: bool) -> str:
        if not is_file:
            return "local" if node.backing else "remote"
        if node.backing == 0:
            path = place.child_path(name)
            return "fetching" if self._base.fetcher.fetch_of(path) else "remote"
        if entry is not None:
            return _STATES[entry.state]
        if self._base.policy.sends(place, name):
            return "unknown"
        return "local"

    def _unsent(self) -> list[bytes]:
        entries = (entry for _, entry in self._parts.index.entries.scan())
        unsent = (entry for entry in entries if entry.state is EntryState.DIRTY and not entry.digest)  # else: only open
        return [entry.path for entry in unsent if self._is_to_be_sent(entry.path)]

    def _is_to_be_sent(self, path: bytes) -> bool:
        place = self._parts.zones.place_of(path.rpartition(b"/")[0])
        return place is None or place.zone.sends


def _is_text(name: bytes) -> bool:
    return shown(name).encode() == name


_WHERE = {
    "cached": "The store has it, and this node has a copy: reads are served from the disk.",
    "unsent": "Its bytes are only on this node: it is being written, or sending it failed; a close after writing sends it.",
    "uploading": "It is being sent to the store now.",
    "local": "It is only on this node and is never sent.",
    "remote": "Only the store has it: the next open fetches it.",
    "fetching": "It is being fetched from the store now.",
    "unknown": "The index does not know it: the next open compares it with the store.",
}


def _reasons(info: EntryInfo) -> Iterator[str]:
    yield f"It is a {info.type} in the zone {info.zone}."
    yield _WHERE[info.state]
    if info.kind is not None:
        yield NameKind(info.kind).policy.explanation
    if info.digest is not None:
        yield f"Its digest is {info.digest}; a copy that differs is never served."
    if info.open:
        yield "It is open, so it can't be evicted."
    if info.pinned:
        yield "It is pinned, so it won't be evicted."
