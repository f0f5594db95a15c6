"""The daemon as a whole: what is opened in which order, what runs side by side, and in which order it stops.

Start: mountpoint, store, index, remote stores, file system, mount, control socket. Stop is the reverse, by leaving
nested blocks: the kernel's requests end first, then background work, then the index is synced and closed. A daemon that
makes room for the next one stops in the same order, but leaves the mount, and does not wait for requests: they are sent
again.
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast import mountpoint
from holdfast.capacity import Limits, Room
from holdfast.config import Config, LoadedConfig, ZoneSection
from holdfast.errors import RemoteUnavailableError, TakeoverError
from holdfast.fs.core import Core
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.fuse.session import Session
from holdfast.index import Index
from holdfast.remote import open_store
from holdfast.service_manager import ServiceManager
from holdfast.session import SessionArea, SessionTables
from holdfast.store import StoreDirectory, disk_space
from holdfast.succession import Inheritance, Succession
from holdfast.telemetry import Counters, EventLog
from holdfast.tenure import Tenure
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
_UMASK = (
    0o022  # what the file system creates gets its mode set; this is for the store's and the remote directories' own files
)


async def run(
    loaded: LoadedConfig, manager: ServiceManager, descriptors: Mapping[str, int], ready: Callable[[], None]
) -> bool:
    """Run the daemon until it is told to stop or the file system is unmounted; return whether to start it again.

    A living mount that is among ``descriptors`` is taken over. ``ready`` is called once the mount answers. Raises
    ``HoldfastError`` when it can't start; nothing is left mounted then but a mount that can still be taken over.
    """
    _prepare_process()
    succession = Succession(SessionArea.beside(Path(loaded.config.control.socket)), manager, descriptors)
    inheritance = None
    try:
        inheritance = succession.find()
        return await _run(loaded.config, succession, inheritance, "", ready)
    except TakeoverError as problem:
        if inheritance is not None:
            inheritance.clear_away()
        succession.abandon()
        return await _run(loaded.config, succession, None, str(problem), ready)


async def _run(
    config: Config, succession: Succession, inheritance: Inheritance | None, refusal: str, ready: Callable[[], None]
) -> bool:
    """Serve one mount: the one that is inherited, or a new one. ``refusal``: why an older one is not taken over."""
    path = inheritance.identity.mountpoint if inheritance else mountpoint.prepare(config.mount.mountpoint)
    counters = Counters()
    with _store(config, inheritance) as store, _index(store) as index, _session(succession, inheritance) as tables:
        events = EventLog(time.time, store.path / "events.jsonl")
        if index.renewed:
            events.emit("index-renewed", why=index.renewed)
        if refusal:
            _log.warning("the mount of an earlier daemon can't be taken over (%s): mounting afresh", refusal)
            events.emit("takeover-failed", why=refusal)
        if inheritance:
            inheritance.check(config.mount.mountpoint, store.store_id)
        core = await _assemble(config, store, index, tables, events, counters)
        files = FileSystem(core)
        session = Session(
            files,
            path,
            allow_other=config.mount.allow_other,
            passthrough=config.mount.passthrough,
            keep=succession.area.exchange,
            device=inheritance.device if inheritance else None,
        )
        if inheritance is None:
            succession.mounted(path, config.mount.mountpoint, store.store_id, session.device)
        tenure = Tenure(files, session, succession, ready, is_inherited=inheritance is not None)
        await tenure.run()
        return tenure.wants_restart


def _prepare_process() -> None:
    os.umask(_UMASK)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _store(config: Config, inheritance: Inheritance | None) -> Iterator[StoreDirectory]:
    store = StoreDirectory.open(Path(config.store.directory))
    try:
        left_over = store.staging.clear() + store.trash.empty()
        if inheritance is None:
            left_over += store.orphanage.clear()
        if left_over:
            _log.info("removed %d files that an earlier run left behind", left_over)
        yield store
    finally:
        store.close()


@contextmanager
def _index(store: StoreDirectory) -> Iterator[Index]:
    index = Index.open(store.index_path, store.store_id)
    try:
        yield index
    finally:
        index.close()


@contextmanager
def _session(succession: Succession, inheritance: Inheritance | None) -> Iterator[SessionTables]:
    if inheritance is None:
        succession.begin()
    tables = succession.area.open_tables()
    try:
        yield tables
    finally:
        tables.close()


async def _assemble(
    config: Config, store: StoreDirectory, index: Index, tables: SessionTables, events: EventLog, counters: Counters
) -> Core:
    zones = ZoneMap(_bases(config), config.checkpoints.durability, config.blobs.durability)
    remotes = {
        name: await _remote(name, section, config, index, events, counters)
        for name, section in (("checkpoints", config.checkpoints), ("blobs", config.blobs))
    }
    _make_zone_roots(config, store, zones)
    residence = Residence(store, index, events, counters)
    cache = config.cache
    room = Room(
        Limits(int(cache.max_bytes), int(cache.min_free_bytes), cache.low_watermark),
        index,
        residence,
        space=lambda: disk_space(store.tree.root_fd),
        events=events,
        counters=counters,
    )
    fetcher = Fetcher(store.staging, make_room=room.make_room, place=residence.place, events=events, counters=counters)
    for path in index.marks.deletions():
        place = zones.place_of(path.rpartition(b"/")[0])
        if place is not None and place.zone.remote is not None:
            remotes[place.zone.remote].deletions.restore(path)
    names = NameTable({kind: getattr(config.names, kind.name.lower()) for kind in NameKind})
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


async def _remote(
    name: str,
    section: ZoneSection,
    config: Config,
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
        directories.deleted,
    )
    ownership = Ownership(section.uid, section.gid, section.file_mode, section.directory_mode)
    return Remote(access, directories, deletions, ownership)


def _bases(config: Config) -> list[bytes]:
    names = [config.workdirs.base, *(role.base for role in config.workdirs.roles.values() if role.base)]
    return list(dict.fromkeys(name.encode() for name in names))


def _make_zone_roots(config: Config, store: StoreDirectory, zones: ZoneMap) -> None:
    """Create the directories in the root of the mount. Bases are open to everybody, sticky, like /tmp."""
    sections = {b"checkpoints": config.checkpoints, b"blobs": config.blobs}
    for name in zones.top_names:
        section = sections.get(name)
        try:
            os.mkdir(name, dir_fd=store.tree.root_fd)
        except FileExistsError:
            continue
        os.chmod(name, section.directory_mode if section else 0o1777, dir_fd=store.tree.root_fd)
        if section and os.geteuid() == 0:
            os.chown(name, section.uid, section.gid, dir_fd=store.tree.root_fd)
    os.chmod(".", 0o755, dir_fd=store.tree.root_fd)
