"""The parts of a file system, made of a configuration: zones, remote stores, cache, transfers."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Mapping

from holdfast.capacity import Limits, Room
from holdfast.checkpoints.formats import FORMATS
from holdfast.config import Config, ZoneSection
from holdfast.errors import RemoteUnavailableError, StoreUnsuitableError
from holdfast.fs.core import Core
from holdfast.index import Index
from holdfast.remote import open_store
from holdfast.session import SessionTables
from holdfast.store import StoreDirectory, free_bytes
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import (
    Deletions,
    Fetcher,
    Ownership,
    Remote,
    RemoteAccess,
    RemoteDirectories,
    Residence,
    Uploader,
)
from holdfast.zones import NameKind, NameTable, ZoneMap

_log = logging.getLogger("holdfast")


async def assembled(
    config: Config, store: StoreDirectory, index: Index, tables: SessionTables, events: EventLog, counters: Counters
) -> Core:
    """Return the parts put together. Asks each remote store whether it answers; raises ``HoldfastError`` if one refuses."""
    zones = ZoneMap(_bases(config), config.checkpoints.durability, config.blobs.durability)
    remotes = {
        name: await _remote(name, section, config, store.store_id, index, events, counters)
        for name, section in (("checkpoints", config.checkpoints), ("blobs", config.blobs))
    }
    _make_zone_roots(config, store, zones)
    residence = Residence(store, index, events, counters)
    cache = config.cache
    room = Room(
        Limits(int(cache.max_bytes), int(cache.min_free_bytes), cache.low_watermark),
        index,
        residence,
        free_bytes=lambda: free_bytes(store.tree.root_fd),
        events=events,
        counters=counters,
    )
    fetcher = Fetcher(store.staging, make_room=room.make_room, place=residence.place, events=events, counters=counters)
    _restore_deletions(store, index, zones, remotes)
    names = NameTable({kind: getattr(config.names, kind.name.lower()) for kind in NameKind}, FORMATS.name_kinds)
    return Core(
        config,
        store,
        index,
        tables,
        zones,
        names,
        remotes,
        residence,
        room,
        fetcher,
        Uploader(config.remote.single_put_limit_bytes, store.store_id, counters),
        events,
        counters,
    )


def _restore_deletions(store: StoreDirectory, index: Index, zones: ZoneMap, remotes: Mapping[str, Remote]) -> None:
    """Take up the deletions that earlier runs have noted.

    A note comes before the local step: a file that is still there as a copy of the very version was not deleted.
    """
    for version in index.marks.deletions():
        place = zones.place_of(version.path.rpartition(b"/")[0])
        entry = index.entries.get(store.tree.inode(version.path))
        copied = entry.name_at(version.path) if entry is not None else None
        if copied is not None and copied.etag == version.etag:
            index.marks.clear_deleted(version.path)
        elif place is not None and place.zone.remote is not None:
            remotes[place.zone.remote].deletions.restore(version)


async def _remote(
    name: str,
    section: ZoneSection,
    config: Config,
    owner: str,
    index: Index,
    events: EventLog,
    counters: Counters,
) -> Remote:
    settings = config.remote
    store = open_store(
        section.url,
        section.options,
        os.environ,
        request_timeout_seconds=settings.request_timeout_seconds,
        connect_timeout_seconds=settings.connect_timeout_seconds,
    )
    access = RemoteAccess(
        name,
        store,
        deadline_seconds=settings.retry_deadline_seconds,
        parallel=settings.parallel_transfers,
        events=events,
        counters=counters,
        clock=time.time,
    )
    try:
        await access.probe()
    except RemoteUnavailableError as problem:
        _log.warning("starting without the store %s: %s", store.url, problem)
    skip = len(name) + 1
    directories = RemoteDirectories(access)
    deletions = Deletions(
        access,
        index.marks,
        lambda path: path[skip:].decode(),
        settings.delete_delay_seconds,
        events,
        directories,
        owner,
    )
    ownership = Ownership(section.uid, section.gid, section.file_mode, section.directory_mode)
    return Remote(access, directories, deletions, ownership)


def _bases(config: Config) -> list[bytes]:
    names = [config.workdirs.base, *(role.base for role in config.workdirs.roles.values() if role.base)]
    return list(dict.fromkeys(name.encode() for name in names))


def _make_zone_roots(config: Config, store: StoreDirectory, zones: ZoneMap) -> None:
    """Create the directories in the root of the mount. Bases are open to everybody, sticky, like /tmp.

    Raises ``StoreUnsuitableError`` where something else stands in the place of one.
    """
    sections = {b"checkpoints": config.checkpoints, b"blobs": config.blobs}
    for name in zones.top_names:
        section = sections.get(name)
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
