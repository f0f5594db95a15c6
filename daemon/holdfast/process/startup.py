"""The daemon as a whole: what is opened in which order, what runs concurrently, and in which order it stops.

Start: mountpoint, store, index, remote stores, file system, mount, control socket. Stop is the reverse, by leaving nested
blocks: the kernel's requests end first, then background work, then the index is synced and closed. A daemon that hands over
stops in the same order, but leaves the mount and does not wait for requests, because they are resent.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.config import Config, LoadedConfig
from holdfast.errors import StoreUnsuitableError, TakeoverError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.kernel_notifications import KernelNotifier
from holdfast.fs.fuse.session import ServedMount, Session
from holdfast.index import Index
from holdfast.mount import covered_directory, mountpoint
from holdfast.mount.covered_directory import Ground
from holdfast.process.assembly import opened
from holdfast.process.reload import Reload
from holdfast.process.serving import Serving
from holdfast.session import SessionArea, SessionTables
from holdfast.session.handover import Handover, Inheritance
from holdfast.store import StoreDirectory
from holdfast.supervision import watchdog
from holdfast.supervision.keeper_link import KeeperLink
from holdfast.supervision.service_manager import ServiceManager
from holdfast.supervision.watchdog import Watchdog
from holdfast.system.text import printable
from holdfast.telemetry import Counters, EventLog, follow_log_level
from holdfast.workdirs import Workdirs

_log = logging.getLogger("holdfast")
_UMASK = 0o022  # files of the mount get an explicit mode; this is for the files of the store and of remote directories


async def run_daemon(
    loaded: LoadedConfig,
    manager: ServiceManager,
    descriptors: Mapping[str, int],
    ready: Callable[[], None],
    read_again: Callable[[], Config],
) -> bool:
    """Run the daemon until it is stopped or the file system is unmounted; return whether to start it again.

    A living mount among ``descriptors``, or held by the keeper, is taken over. ``ready`` is called once the mount answers;
    ``read_again`` reads the configuration when it is to be reloaded. Raises ``HoldfastError`` if the daemon can't start;
    nothing is left mounted then, except a mount that can still be taken over. ``UnmountedError``: it need not start.
    """
    os.umask(_UMASK)
    handover = _handover(loaded.config, manager, descriptors)
    inheritance = None
    if not handover.fetch():  # before the session is claimed: the daemon that is to take the mount over may be starting
        mountpoint.check(loaded.config.mount.mountpoint)
    try:
        inheritance = handover.find()
        return await _run(loaded.config, handover, inheritance, "", ready, read_again)
    except TakeoverError as problem:
        handover.check_wanted()
        if inheritance is not None:
            inheritance.clear_away(loaded.config.mount.mountpoint)
        handover.abandon()
        return await _run(loaded.config, handover, None, str(problem), ready, read_again)
    except StoreUnsuitableError:
        if inheritance is not None and _has_failed(loaded.config):
            inheritance.clear_away(loaded.config.mount.mountpoint)
            handover.abandon()
        raise


def give_up_if_disk_failed(config: Config, manager: ServiceManager, descriptors: Mapping[str, int]) -> None:
    """Give up a mount that is held for the next daemon if the store's disk has failed. Call it when a start has failed.

    No daemon can start on such a disk, and whoever works in the mount would wait for one: now they get errors.
    """
    if (descriptors or config.mount.keeper) and _has_failed(config):
        handover = _handover(config, manager, descriptors)
        if handover.fetch():
            handover.abandon()


def _has_failed(config: Config) -> bool:
    has_failed = StoreDirectory.has_failed(Path(config.store.directory))
    if has_failed:
        _log.error("the disk of %s has failed, and no daemon can start on it: a mount is given up", config.store.directory)
    return has_failed


def _handover(config: Config, manager: ServiceManager, descriptors: Mapping[str, int]) -> Handover:
    keeper = KeeperLink(config.mount.keeper) if config.mount.keeper else None
    return Handover(SessionArea.beside(Path(config.control.socket)), manager, descriptors, keeper)


async def _run(
    config: Config,
    handover: Handover,
    inheritance: Inheritance | None,
    refusal: str,
    ready: Callable[[], None],
    read_again: Callable[[], Config],
) -> bool:
    """Serve one mount, inherited or new. ``refusal``: why an older one is not taken over."""
    is_first = not StoreDirectory.is_at(Path(config.store.directory))
    if inheritance is None:
        mountpoint.check(config.mount.mountpoint)
    counters = Counters()
    with _store(config, inheritance) as store, _index(store) as index, _session(handover, inheritance) as tables:
        events = EventLog(time.time, store.path / "events.jsonl")
        _forget_lost_disks(store, index, events)
        _tell_of_the_past(index, refusal, tables, events)
        if inheritance:
            inheritance.check(config.mount.mountpoint, store.store_id)
        kernel = KernelNotifier(passthrough=config.mount.passthrough)
        base = Foundation(await opened(config, store, index, tables, events, counters), kernel.for_file_system())
        workdirs = Workdirs(base)
        files = FileSystem(base, workdirs)
        path = inheritance.identity.mountpoint if inheritance else mountpoint.prepare(config.mount.mountpoint)
        names = [*config.mounted_stores, *(role.base for role in config.every_role())]
        with covered_directory.taken(path) as let_others, covered_directory.released_on_failure(path) as keep:
            if inheritance is None:
                mountpoint.check(path)  # again: another daemon may have mounted there meanwhile

            def answers() -> None:
                keep()
                ready()

            ground = covered_directory.protect(path, names, is_served=inheritance is not None, must_be_empty=is_first)
            session = Session.mounted(
                base,
                files,
                kernel,
                path,
                ground,
                allow_other=config.mount.allow_other,
                keep=handover.area.exchange,
                device=inheritance.device if inheritance else None,
            )
            with ExitStack() as undo:
                undo.callback(session.close)
                if inheritance is None:
                    handover.mounted(path, config.mount.mountpoint, store.store_id, session.device)
                else:
                    handover.taken_over(inheritance)
                undo.pop_all()
            let_others()
            _tell(ground, path, events)
            follow_log_level(session.observer.feed)
            reload = Reload(read_again, base, files, workdirs, session.observer.feed)
            watched = Watchdog(handover.manager, path, tables.hang)
            mount = ServedMount(session, handover)
            serving = Serving(base, files, workdirs, mount, answers, reload, watched, is_inherited=inheritance is not None)
            await serving.run()
            return serving.wants_restart


def _tell_of_the_past(index: Index, refusal: str, tables: SessionTables, events: EventLog) -> None:
    if index.renewed:
        events.emit("index-renewed", why=index.renewed)
    if refusal:
        _log.warning("the mount of an earlier daemon can't be taken over (%s): mounting afresh", refusal)
        events.emit("takeover-failed", why=refusal)
    if hang := watchdog.taken(tables.hang):
        _log.warning("the daemon before this one hung, and was replaced: %s", hang.why)
        events.emit("hang-ended", why=hang.why)
    tables.executed.count_end(hung=hang is not None and not hang.was_stopped)


def _forget_lost_disks(store: StoreDirectory, index: Index, events: EventLog) -> None:
    """Forget what was on disks that are gone, and tell of it: nobody else has it."""
    for absent in store.others.disks:
        if absent.is_absent:
            _log.error("the disk %s is not there: %s", absent.path, absent.problem)
            events.emit("disk-absent", disk=str(absent.path), problem=absent.problem)
    for aside in store.others.aside:
        events.emit("not-deleted", problem=f"{aside}: a directory that has no path in the mount any more")
    for disk in store.others.lost:
        _log.error("the disk %s is lost, with %d working directories: %s", disk.path, len(disk.workdirs), disk.problem)
        events.emit("disk-lost", disk=disk.path, problem=disk.problem, workdirs=len(disk.workdirs))
        for path in disk.workdirs:
            events.emit("workdir-lost", path=os.fsdecode(path), disk=disk.path)
    for vacated in store.others.vacated:
        index.marks.let_go(vacated)
    if store.others.disks or store.others.lost:
        for path in index.entries.discard_other_disks({disk.number for disk in store.others.disks if not disk.is_new}):
            events.emit("unsent-lost", path=os.fsdecode(path))


def _tell(ground: Ground, path: str, events: EventLog) -> None:
    if ground.is_unprotected:
        _log.warning("the directory below %s is %s", path, ground.protection)
        events.emit("mountpoint-unprotected", mountpoint=path, why=ground.protection)
    if ground.hidden:
        names = printable(", ".join(ground.hidden))
        _log.warning("the mount hides what is in the directory below %s: %s", path, names)
        events.emit("hidden-files", mountpoint=path, names=names)


@contextmanager
def _store(config: Config, inheritance: Inheritance | None) -> Iterator[StoreDirectory]:
    store = StoreDirectory.open(Path(config.store.directory), [Path(disk) for disk in config.store.other_disks])
    try:
        left_over = store.staging.clear()
        if inheritance is None:  # else what is open may be among it (workdirs.tree)
            left_over += store.trash.empty() + store.orphanage.clear()
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
def _session(handover: Handover, inheritance: Inheritance | None) -> Iterator[SessionTables]:
    if inheritance is None:
        handover.begin()
    tables = handover.area.open_tables()
    try:
        yield tables
    finally:
        tables.close()
