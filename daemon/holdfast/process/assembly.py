"""Opening the parts below a file system from the configuration: zones, remote stores, cache, transfers."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Mapping

import trio

from holdfast.checkpoints.configured import name_table
from holdfast.config import Config, WorkdirsSection, ZoneSection
from holdfast.errors import HoldfastError, RemoteUnavailableError, StoreUnsuitableError
from holdfast.fs.foundation import Parts
from holdfast.index import Index
from holdfast.remote import open_store
from holdfast.session import SessionTables
from holdfast.store import StoreDirectory
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import Deletions, ListingCache, Ownership, Remote, RemoteAccess
from holdfast.transfer.retry import QueuedCallers
from holdfast.zones import Fallbacks, ZoneMap

_log = logging.getLogger("holdfast")


async def opened(
    config: Config, store: StoreDirectory, index: Index, tables: SessionTables, events: EventLog, counters: Counters
) -> Parts:
    """Open and return the parts below a file system.

    Each remote store is probed. Raises ``HoldfastError`` if one refuses.
    """
    zones = _zones(config)
    remotes = {
        name: _remote(name, section, config, store.store_id, index, events, counters)
        for name, section in config.mounted_stores.items()
    }
    await _probe(remotes)
    _make_zone_roots(config, store, zones)
    _restore_deletions(store, index, zones, remotes)
    return Parts(config, store, index, tables, zones, name_table(config), remotes, events, counters)


def _zones(config: Config) -> ZoneMap:
    general, special = _fallbacks(config.workdirs), {name: _fallbacks(config.role(name)) for name in config.roles}
    return ZoneMap(
        {name: section.durability for name, section in config.mounted_stores.items()},
        [section.base.encode() for section in config.every_role()],
        lambda role: special.get(role, general),
    )


def _fallbacks(section: WorkdirsSection) -> Fallbacks:
    return Fallbacks(section.local_state or None, section.blob_storage or None)


def _restore_deletions(store: StoreDirectory, index: Index, zones: ZoneMap, remotes: Mapping[str, Remote]) -> None:
    """Resume the deletions that earlier runs recorded. Those of a store that is not configured stay recorded.

    The record precedes the local step: if a copy of that very version still exists, the file was not deleted.
    """
    for version in index.marks.deletions():
        place = zones.place_of(version.path.rpartition(b"/")[0])
        entry = index.entries.get(store.tree.inode(version.path))
        copied = entry.name_at(version.path) if entry is not None else None
        if copied is not None and copied.etag == version.etag:
            index.marks.clear_deleted(version.path)
        elif place is not None and place.zone.remote is not None:
            remotes[place.zone.remote].deletions.restore(version)


def _remote(
    name: str, section: ZoneSection, config: Config, owner: str, index: Index, events: EventLog, counters: Counters
) -> Remote:
    settings = config.remote
    try:
        store = open_store(
            section.url,
            section.options,
            os.environ,
            request_timeout_seconds=settings.request_timeout_seconds,
            connect_timeout_seconds=settings.connect_timeout_seconds,
        )
    except HoldfastError as problem:
        raise type(problem)(f"stores.{name}: {problem}") from None
    access = RemoteAccess(
        name,
        store,
        deadline_seconds=settings.retry_deadline_seconds,
        request_timeout_seconds=settings.request_timeout_seconds,
        parallel=settings.parallel_transfers,
        events=events,
        counters=counters,
        clock=time.time,
        queued=QueuedCallers(),
    )
    access.limit(section.upload_bytes_per_second, section.download_bytes_per_second, section.requests_per_second)
    skip = len(name) + 1
    directories = ListingCache(access)
    deletions = Deletions(
        access, index.marks, lambda path: path[skip:].decode(), settings.delete_delay_seconds, events, directories, owner
    )
    ownership = Ownership(section.uid, section.gid, section.file_mode, section.directory_mode)
    return Remote(access, directories, deletions, ownership)


async def _probe(remotes: Mapping[str, Remote]) -> None:
    """Probe all stores at once. A store that does not answer may do so later; a refusal is raised."""
    refusals: list[HoldfastError] = []

    async def probe(remote: Remote) -> None:
        try:
            await remote.access.probe()
        except RemoteUnavailableError as problem:
            _log.warning("starting without the store %s: %s", remote.name, problem)
        except HoldfastError as problem:
            refusals.append(type(problem)(f"stores.{remote.name}: {problem}"))

    async with trio.open_nursery() as nursery:
        for remote in remotes.values():
            nursery.start_soon(probe, remote)
    for problem in refusals:
        raise problem


def _make_zone_roots(config: Config, store: StoreDirectory, zones: ZoneMap) -> None:
    """Create the directories in the root of the mount. Bases are writable for everybody and sticky, like /tmp.

    Raises ``StoreUnsuitableError`` if something else has the name of one.
    """
    for name in zones.top_names:
        section = config.mounted_stores.get(os.fsdecode(name))
        try:
            os.mkdir(name, dir_fd=store.tree.root_fd)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=store.tree.root_fd, follow_symlinks=False).st_mode):
                path = store.path / "tree" / os.fsdecode(name)
                raise StoreUnsuitableError(
                    f"{path} is no directory, but must be the root of the zone {path.name}; move it elsewhere"
                ) from None
            continue
        os.chmod(name, section.directory_mode if section else 0o1777, dir_fd=store.tree.root_fd)
        if section and os.geteuid() == 0:
            os.chown(name, section.uid, section.gid, dir_fd=store.tree.root_fd)
    os.chmod(".", 0o755, dir_fd=store.tree.root_fd)
