"""Acquiring, holding, releasing and, much later, removing working directories.

A directory is held while the process that acquired it lives, or while its lease file ``.lease`` is open: a shell opens it,
its children inherit the descriptor, and the kernel closes it with the last of them. After that the directory is kept for the
retention time of its role. Every step is one record (``workdirs.records``), so a restarted daemon knows all holders, with or
without its index. Holders that ended meanwhile count as released at the restart.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import trio

from holdfast.config import Config
from holdfast.errors import (
    ForeignWorkdirError,
    HoldfastError,
    IndexUnwritableError,
    LeaseHeldError,
    NoSuchEntryError,
    WithheldError,
    ZoneNotPermittedError,
)
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node, path_of
from holdfast.index import WorkdirRecord
from holdfast.processes import boot_id
from holdfast.workdirs.holders import Process, number_here
from holdfast.workdirs.ownership import LEASE_FILE
from holdfast.workdirs.records import Records
from holdfast.workdirs.tree import WorkdirTree
from holdfast.zones import WorkdirName, ZoneKind, ZonePath

_LONGEST_PAUSE_SECONDS = 3600.0
_RETRY_SECONDS = 5.0
_SLICE_SECONDS = 0.01
"""How long many directories are dealt with before others have their turn."""
_LEASE_CHECK_SECONDS = 60.0
"""How often a lease file that keeps a directory is looked at: its last close is not seen under another name."""
_TOLD_AT_ONCE = 3
_TRANSIENT = (OSError, IndexUnwritableError)
"""Errors that the background tasks survive: too many open files, a full disk, a directory that its owner has closed."""
_log = logging.getLogger("holdfast.workdirs")


@dataclass(frozen=True, slots=True)
class Workdir:
    """A working directory; ``path`` is relative to the mount, ``holder`` is None if nobody holds it.

    It may take ``limit_bytes`` of the disk (0: no limit).
    """

    path: bytes
    record: WorkdirRecord
    holder: str | None
    expires_seconds: float | None
    limit_bytes: int


class Workdirs:
    """The working directories of a mount. ``run`` watches holders and retention."""

    def __init__(self, base: Foundation) -> None:
        parts = base.parts
        self._config = parts.config
        self._events = parts.events
        self._nodes = base.nodes
        self._records = Records(parts.index.workdirs, parts.store.tree, boot_id())
        self._tree = WorkdirTree(base)
        self._nursery: trio.Nursery | None = None
        self._watched: dict[Process, trio.CancelScope] = {}
        self._removed: list[tuple[bytes, int]] = []
        """Paths of removed directories that the kernel may still know, and the uids of their owners."""
        self._not_removed: set[bytes] = set()
        """Paths of directories that are due, whose removal fails."""
        self._changed = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch holders and retention until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._restore_holders()
            task_status.started()
            while True:
                changed = self._changed
                due = await self._expire_due()
                with trio.move_on_after(min(_LONGEST_PAUSE_SECONDS, max(0.0, due - time.time()))):
                    await changed.wait()

    async def acquire(
        self,
        role: str,
        resource_id: str,
        pid: int,
        owner: tuple[int, int],
        asked_by: int = 0,
        namespace: int = 0,
        *,
        adopts: bool = False,
    ) -> Workdir:
        """Give the process ``pid`` the directory of ``role`` and ``resource_id``; create it if needed.

        ``tmp`` and ``rocksdb`` are emptied, the rest is kept. ``owner`` (uid, gid) has the directory: -1 stands for the user
        of the process. ``asked_by`` is the uid of who asks; only root (0) may name a process of another user.
        ``namespace`` is the process namespace of ``pid`` (``holders.number_here``). On return, the process sees the emptied
        directories. Raises ``WithheldError`` for a process of another user, ``LeaseHeldError`` while another process holds
        the directory, ``ForeignWorkdirError`` if it exists and is not the owner's (with ``adopts``, it is given to the
        owner), and ``ConfigurationError`` for a bad name or pid.
        """
        name = WorkdirName.checked(role, resource_id)
        pid = await trio.to_thread.run_sync(number_here, pid, namespace) if namespace else pid
        process = Process.find(pid)
        user, group = process.user()
        if asked_by not in (0, user):
            raise WithheldError("only root may acquire a working directory for a process of another user")
        owner = user if owner[0] == -1 else owner[0], group if owner[1] == -1 else owner[1]
        path = self._path_of(name)
        held = self._held_by(path, process)
        if held is None and adopts:
            await self._tree.adopt(path, owner)
            held = self._held_by(path, process)  # somebody else may have been faster
        if held is not None:
            return held
        self._prepare(path, owner)
        workdir = self._hold(path, name, process)
        self._wake()
        await self._tree.invalidate_kernel()
        return workdir

    def _held_by(self, path: bytes, process: Process) -> Workdir | None:
        """Return the directory if the process holds it, None if nobody does. Raises ``LeaseHeldError``."""
        record = self._record_of_existing(path)
        holder = self._holder(path, record)
        if holder is None or record is None:
            return None
        if _process_of(record) == process:
            return self._describe(path, record)
        self._events.emit("workdir-refused", path=os.fsdecode(path), holder=holder, pid=process.pid)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.acquired_seconds))
        raise LeaseHeldError(
            f"{os.fsdecode(path)} is held by {holder} since {since}; end that process, or acquire with another id"
        )

    def _prepare(self, path: bytes, owner: tuple[int, int]) -> None:
        try:
            self._tree.prepare(path, owner)
        except ForeignWorkdirError as problem:
            self._events.emit("workdir-refused", path=os.fsdecode(path), problem=str(problem), uid=owner[0])
            raise

    def release(self, role: str, resource_id: str) -> Workdir:
        """End the process's hold on a directory now; it is kept for its retention time. Raises ``NoSuchEntryError``.

        While its lease file is open it is still held; the retention time begins when that is closed.
        """
        path = self._path_of(WorkdirName.checked(role, resource_id))
        record = self._record_of_existing(path)
        if record is None:
            raise NoSuchEntryError(f"there is no working directory {os.fsdecode(path)}")
        if record.pid or not record.released_seconds:
            self._process_gone(path, record)
        return self._describe(path, record)

    def owner(self, role: str, resource_id: str) -> int:
        """Return the uid of the owner of a directory; -1 if there is none. Raises ``ConfigurationError`` for a bad name."""
        return self._tree.owner(self._path_of(WorkdirName.checked(role, resource_id)))

    def all(self) -> list[Workdir]:
        """Return all working directories by path."""
        return list(self.listed())

    def listed(self, after: bytes = b"", owner: int | None = None) -> Iterator[Workdir]:
        """Yield the working directories with paths after ``after``, by path; only those of the user ``owner``, if given."""
        for path, record in self._records.all():
            if path > after and self._tree.exists(path) and owner in (None, self._tree.owner(path)):
                yield self._describe(path, record)

    def limits(self) -> dict[bytes, int]:
        """Return by path how many bytes each working directory may take; 0: no limit."""
        return {path: int(self._config.role(record.role).max_bytes) for path, record in self._records.all()}

    def configure(self, config: Config) -> None:
        """Use these retention times and limits from now on."""
        self._config = config
        self._wake()

    # --- holders -----------------------------------------------------------------------------------------------------

    def _hold(self, path: bytes, name: WorkdirName, process: Process) -> Workdir:
        now = time.time()
        old = self._records.get(path)
        record = WorkdirRecord(
            name.role,
            name.resource_id,
            created_seconds=old.created_seconds if old else now,
            acquired_seconds=now,
            pid=process.pid,
            pid_started_ticks=process.started_ticks,
            command=process.command,
            acquisitions=old.acquisitions + 1 if old else 1,
        )
        self._records.put(path, record)
        self._events.emit(
            "workdir-acquired",
            path=os.fsdecode(path),
            pid=process.pid,
            command=process.command,
            uid=self._tree.owner(path),
        )
        self._watch(process)
        return self._describe(path, record)

    def _watch(self, process: Process) -> None:
        """Wait for the end of a process, with one task and one descriptor however many directories it holds."""
        assert self._nursery is not None, "the working directories are not being watched over"
        if process not in self._watched:
            scope = self._watched[process] = trio.CancelScope()
            self._nursery.start_soon(self._wait_for_end, process, scope)

    def _unwatch_others(self) -> None:
        """Stop waiting for processes that hold nothing any more."""
        holders = {_process_of(record) for _, record in self._records.all()}
        for process in self._watched.keys() - holders:
            self._watched.pop(process).cancel()

    async def _wait_for_end(self, process: Process, scope: trio.CancelScope) -> None:
        with scope:
            await process.wait_end()
            while problems := await self._note_end(process):
                _log.warning("can't note yet that pid %d has ended: %s", process.pid, "; ".join(problems))
                await trio.sleep(_RETRY_SECONDS)
        if self._watched.get(process) is scope:
            del self._watched[process]

    async def _note_end(self, process: Process) -> list[str]:
        """Record for all directories of an ended process that it is gone; return the first errors."""
        problems = []
        until = time.monotonic() + _SLICE_SECONDS
        for path in [path for path, record in self._records.all() if _process_of(record) == process]:
            if time.monotonic() > until:
                await trio.lowlevel.checkpoint()
                until = time.monotonic() + _SLICE_SECONDS
            record = self._records.get(path)
            try:
                if record is not None and _process_of(record) == process:
                    self._process_gone(path, record)
            except _TRANSIENT as problem:
                problems.append(f"{os.fsdecode(path)}: {problem}")
        return problems[:_TOLD_AT_ONCE]

    def _process_gone(self, path: bytes, record: WorkdirRecord) -> None:
        """Record that no process holds the directory. If its lease file is open, the last close ends the hold.

        After an error nothing is recorded.
        """
        if self._lease_is_open(path):
            record.pid = 0
            self._records.put(path, record)
        else:
            self._released(path, record)

    def _released(self, path: bytes, record: WorkdirRecord) -> None:
        record.pid = 0
        record.released_seconds = time.time()
        self._records.put(path, record)
        self._events.emit("workdir-released", path=os.fsdecode(path), uid=self._tree.owner(path))
        self._wake()

    def _record_of_existing(self, path: bytes) -> WorkdirRecord | None:
        """Return the record of the directory at ``path``; None if it is gone: removing a directory releases it."""
        record = self._records.get(path)
        if record is not None and not self._tree.exists(path):
            self._discard(path)
            return None
        return record

    def _holder(self, path: bytes, record: WorkdirRecord | None) -> str | None:
        if record is None:
            return None
        if record.pid and _process_of(record).is_alive():
            return f"pid {record.pid} ({record.command})"
        if self._lease_is_open(path):
            return f"a process that {record.command} started (it has {LEASE_FILE.decode()} open)"
        return None

    def _lease_is_open(self, path: bytes) -> bool:
        inode = self._tree.lease_inode(path)
        node = self._nodes.of_backing(inode) if inode else None
        return node is not None and node.opened is not None

    # --- what happens in the mount -----------------------------------------------------------------------------------

    def check_new_directory(self, place: ZonePath, caller: Caller) -> None:
        """Refuse a working directory to a process that can't be watched, because it has no number here (fuse(4))."""
        if caller.pid or self._name_at(place) is None:
            return
        problem = "the process is in no process namespace that the daemon sees: nobody would know when it ends"
        self._events.emit("workdir-refused", path=os.fsdecode(place.path), problem=problem, uid=caller.uid)
        raise ZoneNotPermittedError(f"{os.fsdecode(place.path)}: {problem}")

    def directory_made(self, place: ZonePath, caller: Caller) -> None:
        """A process made a directory in a base by mkdir(2), and so acquired it.

        Raises ``OSError``, and ``ConfigurationError`` if the process was killed meanwhile; nobody holds the directory then.
        """
        name = self._name_at(place)
        if name is None:
            return
        try:
            self._tree.prepare(place.path, (caller.uid, caller.gid), is_found=False)
            self._hold(place.path, name, Process.find(caller.pid))
        except (OSError, HoldfastError):
            self._records.restore(place.path, name)
            self._wake()
            raise

    def _name_at(self, place: ZonePath) -> WorkdirName | None:
        """Return the working directory's name if ``place`` is one."""
        is_directly_in_base = place.zone.kind is ZoneKind.PRIVATE and place.path == place.zone.prefix
        return WorkdirName.parse(place.path.rsplit(b"/", 1)[-1]) if is_directly_in_base else None

    def file_closed(self, node: Node) -> None:
        """The last handle of a file was closed. A lease file's last close ends the hold if the process is gone too."""
        if node.name != LEASE_FILE or node.parent is None:
            return
        path = path_of(node.parent)
        record = self._records.get(path) if path else None
        if path and record is not None and not record.released_seconds and self._holder(path, record) is None:
            self._released(path, record)

    # --- retention ---------------------------------------------------------------------------------------------------

    def _restore_holders(self) -> None:
        """After a start: watch holders that still live, count the others as released now, restore missing records."""
        for path in self._tree.existing():
            name = WorkdirName.parse(path.rsplit(b"/", 1)[-1])
            assert name is not None
            self._records.restore(path, name)
        for path, record in self._records.all():
            if not self._tree.exists(path):
                self._records.discard(path)
            elif self._holder(path, record) is not None:
                if record.pid:
                    self._watch(_process_of(record))
            elif not record.released_seconds:
                self._released(path, record)

    async def _expire_due(self) -> float:
        """Remove everything that is due; return the time of the next removal."""
        now, due = time.time(), math.inf
        left = [path for path, _ in self._records.all()]
        while left:
            due = min(due, self._expire_some(left, now))
            await trio.lowlevel.checkpoint()
        self._unwatch_others()
        try:
            await self._tree.invalidate_kernel()
            while self._removed:
                removed, uid = self._removed.pop(0)
                self._events.emit("workdir-removed", path=os.fsdecode(removed), uid=uid)
            await self._tree.empty_trash()
        except OSError as problem:
            _log.warning("can't delete yet what working directories have left: %s", problem)
            return now + _RETRY_SECONDS
        return due

    def _expire_some(self, left: list[bytes], now: float) -> float:
        """Take paths from the end of ``left``, for a moment; remove what is due, return when the next one is.

        A user can have thousands of directories, which are all due at once.
        """
        until, due = time.monotonic() + _SLICE_SECONDS, math.inf
        with self._tree.one_step():
            while left and time.monotonic() < until:
                path = left.pop()
                record = self._records.get(path)
                if record is not None:
                    due = min(due, self._expire(path, record, now))
        return due

    def _expire(self, path: bytes, record: WorkdirRecord, now: float) -> float:
        """Remove a directory after its retention time; return when it must be checked again."""
        try:
            if not self._tree.exists(path):
                self._discard(path)
                return math.inf
            if record.pid and not record.released_seconds:
                return math.inf
            if self._holder(path, record) is not None:
                return now + _LEASE_CHECK_SECONDS
            if not record.released_seconds:  # its lease file was closed under another name
                self._released(path, record)
                return math.inf
            expires = record.released_seconds + self._retain_seconds(record.role)
            if expires > now:
                return expires
            self._remove(path)
        except Exception as problem:  # noqa: BLE001 whatever a user has made of his directory, it must not end the daemon
            self._tell_once(path, problem)
            return now + _RETRY_SECONDS
        return math.inf

    def _remove(self, path: bytes) -> None:
        owner = self._tree.owner(path)
        self._tree.remove(path)
        self._removed.append((path, owner))
        self._discard(path)

    def _discard(self, path: bytes) -> None:
        """Forget a directory that is gone."""
        self._records.discard(path)
        self._not_removed.discard(path)

    def _tell_once(self, path: bytes, problem: Exception) -> None:
        """Tell of a directory that is due and can't be removed. It is tried again, silently."""
        if path not in self._not_removed:
            self._not_removed.add(path)
            is_fault = not isinstance(problem, _TRANSIENT)
            _log.warning("can't remove %s yet: %s", os.fsdecode(path), problem, exc_info=problem if is_fault else None)
            self._events.emit("not-deleted", path=os.fsdecode(path), problem=str(problem) or repr(problem))

    def _retain_seconds(self, role: str) -> float:
        return self._config.role(role).retain_seconds

    def _path_of(self, name: WorkdirName) -> bytes:
        return self._config.role(name.role).base.encode() + b"/" + name.encoded()

    def _describe(self, path: bytes, record: WorkdirRecord) -> Workdir:
        holder = self._holder(path, record)
        released = record.released_seconds if holder is None else 0.0
        expires = released + self._retain_seconds(record.role) if released else None
        return Workdir(path, record, holder, expires, int(self._config.role(record.role).max_bytes))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _process_of(record: WorkdirRecord) -> Process:
    """Return the process that a record names as holder. The number 0 stands for none."""
    return Process(record.pid, record.pid_started_ticks, record.command)
