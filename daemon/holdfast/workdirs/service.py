"""Acquiring and releasing working directories, by request or by what happens in the mount.

A directory is held by one process or volume at a time (``workdirs.holding``). After that it is kept for the retention time
of its role (``workdirs.retention``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from holdfast.config import Config
from holdfast.errors import (
    DirectoryBusyError,
    ForeignWorkdirError,
    HoldfastError,
    LeaseHeldError,
    NoSuchEntryError,
    WithheldError,
    ZoneNotPermittedError,
)
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node, path_of
from holdfast.index import WorkdirRecord
from holdfast.store import Space
from holdfast.system.processes import boot_id
from holdfast.system.waits import before_waiting
from holdfast.telemetry.slices import Slices
from holdfast.workdirs.holder_process import Process, Volume, number_here
from holdfast.workdirs.holding import TRANSIENT, Holding, holder_of
from holdfast.workdirs.ownership import LEASE_FILE
from holdfast.workdirs.records import Records
from holdfast.workdirs.retention import Retention
from holdfast.workdirs.tree import WorkdirTree
from holdfast.zones import WorkdirName, ZoneKind, ZonePath

_LONGEST_PAUSE_SECONDS = 3600.0
_log = logging.getLogger("holdfast.workdirs")


@dataclass(frozen=True, slots=True)
class Workdir:
    """A working directory; ``path`` is relative to the mount, ``holder`` is None if nobody holds it.

    It may take so many files and bytes of the disk as ``limit`` says (0: no limit).
    """

    path: bytes
    record: WorkdirRecord
    holder: str | None
    expires_seconds: float | None
    limit: Space


class Workdirs:
    """The working directories of a mount. ``run`` watches holders and retention."""

    def __init__(self, base: Foundation) -> None:
        parts = base.parts
        self._config = parts.config
        self._events = parts.events
        self._lost_disks = parts.store.others.lost
        self._records = Records(parts.index.workdirs, parts.store.tree, boot_id())
        self._tree = WorkdirTree(base)
        self._holding = Holding(self._records, self._tree, base.nodes, self._events, begin_retention=self._wake)
        self._retention = Retention(self._records, self._tree, self._holding, self._events, self._retain_seconds)
        self._changed = trio.Event()
        self._new = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch holders and retention until cancelled."""
        for disk in self._lost_disks:
            for path in disk.workdirs:
                self._tree.gone(path)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._holding.run)
            task_status.started()
            while True:
                changed = self._changed
                due = await self._retention.expire_due()
                with trio.move_on_after(min(_LONGEST_PAUSE_SECONDS, max(0.0, due - time.time()))):
                    await changed.wait()

    async def acquire(
        self,
        role: str,
        resource_id: str,
        pid: int,
        owner: tuple[int, int],
        asked_by: int | None = None,
        namespace: int = 0,
        *,
        adopts: bool = False,
    ) -> Workdir:
        """Give the process ``pid`` the directory of ``role`` and ``resource_id``; create it if needed.

        ``tmp`` and ``rocksdb`` are emptied, the rest is kept. ``owner`` (uid, gid) has the directory: -1 stands for the user
        of the process. ``asked_by`` is the uid of who asks; only root (None) may name a process of another user.
        ``namespace`` is the process namespace of ``pid`` (``number_here``). On return, the process sees the emptied
        directories; ``DirectoryBusyError`` says that it may not yet, and it may call again. Raises ``WithheldError`` for a
        process of another user, ``LeaseHeldError`` while another process holds the directory, ``ForeignWorkdirError`` if it
        exists and is not the owner's (with ``adopts``, it is given to the owner), and ``ConfigurationError`` for a bad name
        or pid.
        """
        name = WorkdirName.checked(role, resource_id)
        process, (user, group) = await trio.to_thread.run_sync(_find, pid, namespace)
        if asked_by not in (None, user):
            raise WithheldError("only root may acquire a working directory for a process of another user")
        owner = user if owner[0] == -1 else owner[0], group if owner[1] == -1 else owner[1]
        return await self._acquire(name, process, owner, adopts=adopts)

    async def acquire_for_volume(self, role: str, resource_id: str, volume: Volume, owner: tuple[int, int]) -> Workdir:
        """Give a volume the directory, until ``release``. Otherwise as ``acquire``; -1 in ``owner`` stands for root."""
        name = WorkdirName.checked(role, resource_id)
        return await self._acquire(name, volume, (max(owner[0], 0), max(owner[1], 0)), adopts=False)

    async def _acquire(
        self, name: WorkdirName, holder: Process | Volume, owner: tuple[int, int], *, adopts: bool
    ) -> Workdir:
        path = self._path_of(name)
        held = self._held_by(path, holder)
        if held is None and adopts:
            await self._tree.adopt(path, owner)
            held = self._held_by(path, holder)  # somebody else may have been faster
        while held is None and self._tree.hides_many(path):
            with self._telling_refusals(path, owner[0]):
                self._tree.check_owner(path, owner[0])
            self._tree.show_some_again(path)
            await trio.lowlevel.checkpoint()
            held = self._held_by(path, holder)
        if held is None:
            with self._telling_refusals(path, owner[0]):
                self._tree.prepare(path, owner)
            held = self._describe(path, self._holding.hold(path, name, holder))
            self._new.set()
            self._wake()
        if not await self._tree.invalidate_kernel(path):
            raise DirectoryBusyError(f"a process holds the lock of {os.fsdecode(path)}: end what hangs there, and try again")
        return held

    def _held_by(self, path: bytes, wanted: Process | Volume) -> Workdir | None:
        """Return the directory if ``wanted`` holds it, None if nobody does. Raises ``LeaseHeldError``."""
        record = self._retention.record_of_existing(path)
        holder = self._holding.holder(path, record)
        if holder is None or record is None:
            return None
        if holder_of(record) == wanted:
            return self._describe(path, record)
        asked_for = {"pod": wanted.pod} if isinstance(wanted, Volume) else {"pid": wanted.pid}
        self._events.emit("workdir-refused", path=os.fsdecode(path), holder=holder, **asked_for)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.acquired_seconds))
        raise LeaseHeldError(
            f"{os.fsdecode(path)} is held by {holder} since {since}; end that process, or acquire with another id"
        )

    @contextmanager
    def _telling_refusals(self, path: bytes, uid: int) -> Iterator[None]:
        try:
            yield
        except ForeignWorkdirError as problem:
            self._events.emit("workdir-refused", path=os.fsdecode(path), problem=str(problem), uid=uid)
            raise

    def release(self, role: str, resource_id: str, volume: str = "") -> Workdir:
        """End the hold on a directory now; it is kept for its retention time. Raises ``NoSuchEntryError``.

        While its lease file is open it is still held; the retention time begins when that is closed. With ``volume``, only
        the hold of the volume with this id ends.
        """
        path = self._path_of(WorkdirName.checked(role, resource_id))
        record = self._retention.record_of_existing(path)
        if record is None:
            raise NoSuchEntryError(f"there is no working directory {os.fsdecode(path)}")
        if volume in ("", record.volume) and (record.pid or record.volume or not record.released_seconds):
            self._holding.holder_gone(path, record)
        return self._describe(path, record)

    def lost(self, paths: Iterable[bytes]) -> list[bytes]:
        """Remove the directories at these paths, whose disk has failed, whoever holds them; return those that are gone."""
        gone = []
        with self._tree.one_step():
            for path in paths:
                try:
                    self._tree.remove(path)
                except (OSError, HoldfastError) as problem:
                    _log.warning("%s, which is on a disk that has failed, can't be removed: %s", os.fsdecode(path), problem)
                    continue
                self._records.discard(path)
                gone.append(path)
        self._wake()
        return gone

    def owner(self, role: str, resource_id: str) -> int:
        """Return the uid of the owner of a directory; -1 if there is none. Raises ``ConfigurationError`` for a bad name."""
        return self._tree.owner(self._path_of(WorkdirName.checked(role, resource_id)))

    async def some(self, after: bytes = b"", owner: int | None = None, most: int | None = None) -> list[Workdir]:
        """Return the working directories with paths after ``after``, by path: up to ``most``, those of ``owner`` if given.

        There may be thousands, and each takes some system calls: others have their turn meanwhile.
        """
        found: list[Workdir] = []
        slices = Slices()
        for path, record in self._records.listed(after):
            if len(found) == most:
                break
            if self._tree.exists(path) and owner in (None, self._tree.owner(path)):
                found.append(self._describe(path, record))
            await slices.pause()
        return found

    async def limits(self) -> dict[bytes, Space]:
        """Return by path how many files and bytes each working directory may take; 0: no limit."""
        limits, slices = {}, Slices()
        for path, record in self._records.listed():
            limits[path] = self._limit_of(record)
            await slices.pause()
        return limits

    def _limit_of(self, record: WorkdirRecord) -> Space:
        role = self._config.role(record.role)
        return Space(role.max_files, int(role.max_bytes))

    def configure(self, config: Config) -> None:
        """Use these retention times and limits from now on."""
        self._config = config
        self._new.set()
        self._wake()

    async def wait_new(self) -> None:
        """Return when a directory was acquired, or limits may have changed, since the last return. One task may wait."""
        await self._new.wait()
        self._new = trio.Event()

    def check_new_directory(self, place: ZonePath, caller: Caller) -> None:
        """Refuse a working directory to a process that can't be watched, because it has no number here (fuse(4))."""
        if caller.pid or self._name_at(place) is None:
            return
        problem = "the process is in no process namespace that the daemon sees: nobody would know when it ends"
        self._events.emit("workdir-refused", path=os.fsdecode(place.path), problem=problem, uid=caller.uid)
        raise ZoneNotPermittedError(f"{os.fsdecode(place.path)}: {problem}")

    async def before_new_directory(self, place: ZonePath) -> None:
        """Show again what was deleted in a directory that was here under this name, if there is none now."""
        if self._name_at(place) is None:
            return
        while self._tree.hides_many(place.path) and not self._tree.exists(place.path):
            await before_waiting()
            self._tree.show_some_again(place.path)
            await trio.lowlevel.checkpoint()

    def directory_made(self, place: ZonePath, caller: Caller) -> None:
        """Record that a process acquired a directory by making it in a base (mkdir(2)).

        Raises ``OSError``, and ``ConfigurationError`` if the process was killed meanwhile; nobody holds the directory then.
        """
        name = self._name_at(place)
        if name is None:
            return
        try:
            self._tree.prepare(place.path, (caller.uid, caller.gid), is_found=False)
            self._holding.hold(place.path, name, Process.find(caller.pid))
            self._new.set()
        except (OSError, HoldfastError):
            self._records.restore(place.path, name)
            self._wake()
            raise

    def _name_at(self, place: ZonePath) -> WorkdirName | None:
        """Return the working directory's name if ``place`` is one."""
        is_directly_in_base = place.zone.kind is ZoneKind.PRIVATE and place.path == place.zone.prefix
        return WorkdirName.parse(place.path.rsplit(b"/", 1)[-1]) if is_directly_in_base else None

    def file_closed(self, node: Node) -> None:
        """Note that the last handle of a file was closed: that of a lease file ends the hold if the process is gone too.

        What can't be noted now, ``Retention`` notes when it looks at the directory next.
        """
        if node.name != LEASE_FILE or node.parent is None:
            return
        path = path_of(node.parent)
        record = self._records.get(path) if path else None
        if path and record is not None and not record.released_seconds and self._holding.holder(path, record) is None:
            try:
                self._holding.released(path, record)
            except TRANSIENT as problem:  # nobody waits for it, and the file is closed all the same
                _log.warning("can't note yet that nobody holds %s: %s", os.fsdecode(path), problem)
                self._wake()

    def _retain_seconds(self, role: str) -> float:
        return self._config.role(role).retain_seconds

    def _path_of(self, name: WorkdirName) -> bytes:
        return self._config.role(name.role).base.encode() + b"/" + name.encoded()

    def _describe(self, path: bytes, record: WorkdirRecord) -> Workdir:
        holder = self._holding.holder(path, record)
        released = record.released_seconds if holder is None else 0.0
        expires = released + self._retain_seconds(record.role) if released else None
        return Workdir(path, record, holder, expires, self._limit_of(record))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _find(pid: int, namespace: int) -> tuple[Process, tuple[int, int]]:
    """Return a process, and uid and gid of its user. Raises ``ConfigurationError``.

    Call it in a thread: /proc names the user beside all of its groups, of which there may be 65,536.
    """
    process = Process.find(number_here(pid, namespace) if namespace else pid)
    return process, process.user()
