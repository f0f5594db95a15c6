"""The daemon as a whole: what is opened in which order, what runs side by side, and in which order it stops.

Start: mountpoint, store, index, remote stores, file system, mount, control socket. Stop is the reverse, by leaving
nested blocks: the kernel's requests end first, then background work, then the index is synced and closed.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from holdfast import mountpoint
from holdfast.capacity import Limits, Room
from holdfast.config import Config, LoadedConfig, ZoneSection
from holdfast.control.actions import Actions
from holdfast.control.inspect import Inspector
from holdfast.control.paths import Paths
from holdfast.control.server import ControlServer
from holdfast.control.sweeping import SweepRoutes
from holdfast.errors import RemoteUnavailableError
from holdfast.fs.core import Core
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.fuse.session import Session
from holdfast.index import Index
from holdfast.maintenance import Upkeep
from holdfast.remote import open_store
from holdfast.store import StoreDirectory, disk_space
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
from holdfast.workdirs import Workdirs
from holdfast.zones import NameKind, NameTable, ZoneMap

_log = logging.getLogger("holdfast")
_SYNC_SECONDS = 30.0
_EXPIRY_SECONDS = 600.0
_UMASK = (
    0o022  # what the file system creates gets its mode set; this is for the store's and the remote directories' own files
)


async def run(loaded: LoadedConfig, ready: Callable[[], None]) -> None:
    """Run the daemon until it is told to stop or the file system is unmounted.

    ``ready`` is called once the mount answers. Raises ``HoldfastError`` when it can't start; nothing is left mounted then.
    """
    config = loaded.config
    _prepare_process()
    path = mountpoint.prepare(config.mount.mountpoint)
    counters = Counters()
    with _store(config) as store, _index(store) as index:
        events = EventLog(time.time, store.path / "events.jsonl")
        if index.renewed:
            events.emit("index-renewed", why=index.renewed)
        core = await _assemble(config, store, index, events, counters)
        files = FileSystem(core)
        session = Session(files, path, allow_other=config.mount.allow_other, passthrough=config.mount.passthrough)
        try:
            await _serve(files, session, ready)
        finally:
            session.close()
            files.end()
            events.emit("stopped")


async def _serve(files: FileSystem, session: Session, ready: Callable[[], None]) -> None:
    core = files.core
    workdirs = Workdirs(files)
    upkeep = Upkeep(files, workdirs)
    async with trio.open_nursery() as background:
        await background.start(core.fetcher.run)
        await background.start(files.run)
        await background.start(workdirs.run)
        background.start_soon(core.room.run)
        background.start_soon(_sync_regularly, core.index)
        background.start_soon(_expire_quarantine, core)
        background.start_soon(upkeep.run)
        for remote in core.remotes.values():
            background.start_soon(remote.deletions.run)
        async with trio.open_nursery() as front:
            front.start_soon(_stop_on_signal, session)
            await front.start(
                _control(files, workdirs, upkeep, session).run,
                Path(core.config.control.socket),
                core.config.control.group,
            )
            front.start_soon(_announce, session, core.events, ready)
            await session.serve()
            front.cancel_scope.cancel()
        background.cancel_scope.cancel()


def _control(files: FileSystem, workdirs: Workdirs, upkeep: Upkeep, session: Session) -> ControlServer:
    paths = Paths(files, session.mountpoint)
    inspector = Inspector(files, paths, workdirs, session)
    return ControlServer(inspector, Actions(files, paths), workdirs, SweepRoutes(upkeep, paths), files.core.events)


async def _announce(session: Session, events: EventLog, ready: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(os.statvfs, session.mountpoint)
    events.emit("mounted", mountpoint=session.mountpoint, pid=os.getpid())
    ready()


async def _stop_on_signal(session: Session) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("stopping on %s", signal.Signals(number).name)
            session.stop()


async def _sync_regularly(index: Index) -> None:
    while True:
        await trio.sleep(_SYNC_SECONDS)
        await trio.to_thread.run_sync(index.sync)


async def _expire_quarantine(core: Core) -> None:
    while True:
        before = time.time() - core.config.integrity.quarantine_seconds
        expired = await trio.to_thread.run_sync(core.store.quarantine.expire, before)
        if expired:
            core.events.emit("quarantine-expired", files=expired)
        await trio.sleep(_EXPIRY_SECONDS)


def _prepare_process() -> None:
    os.umask(_UMASK)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _store(config: Config) -> Iterator[StoreDirectory]:
    store = StoreDirectory.open(Path(config.store.directory))
    try:
        left_over = store.staging.clear() + store.orphanage.clear() + store.trash.empty()
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


async def _assemble(config: Config, store: StoreDirectory, index: Index, events: EventLog, counters: Counters) -> Core:
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
        zones,
        names,
        remotes,
        residence,
        room,
        fetcher,
        Uploader(config.remote.single_put_limit_bytes, counters),
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
