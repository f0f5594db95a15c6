"""Holders of working directories: noting them, watching them, and what their end means.

A directory is held while the process that acquired it lives, or while its lease file ``.lease`` is open: a shell opens it,
its children inherit the descriptor, and the kernel closes it with the last of them. A volume of a pod holds it until it is
released. Every step is one record, so a restarted
daemon knows all holders, with or without its index. Holders that ended meanwhile count as released at the restart.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from holdfast.errors import IndexUnwritableError
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.index import HELD_BY_VOLUME, WorkdirRecord
from holdfast.telemetry import EventLog
from holdfast.telemetry.slices import Slices
from holdfast.workdirs.holder_process import Process, Volume
from holdfast.workdirs.ownership import LEASE_FILE
from holdfast.workdirs.records import Records
from holdfast.workdirs.tree import WorkdirTree
from holdfast.zones import WorkdirName

TRANSIENT = (OSError, IndexUnwritableError)
"""Errors that the background tasks survive: too many open files, a full disk, a directory that its owner has closed."""
RETRY_SECONDS = 5.0
_TOLD_AT_ONCE = 3
_log = logging.getLogger("holdfast.workdirs")


@dataclass(slots=True)
class Holding:
    """The holders of all working directories, by path. ``run`` watches them.

    ``begin_retention`` is called when a directory's retention time begins.
    """

    records: Records
    tree: WorkdirTree
    nodes: NodeTable
    events: EventLog
    begin_retention: Callable[[], None]
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _watched: dict[Process, trio.CancelScope] = field(default_factory=dict, init=False)
    _paths: dict[Process, set[bytes]] = field(default_factory=dict, init=False)
    """The directories that each of them has got. It may not hold all of these any more."""
    _noting: trio.Lock = field(default_factory=trio.Lock, init=False)
    """Held while the end of a process is noted: thousands may end at once, and each takes a slice of the event loop."""
    _new_holders: set[Process] = field(default_factory=set, init=False)
    """The processes that have got a directory since ``unwatch_others`` began to look."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the holders until cancelled. Started once those from before this daemon's start are known."""
        async with trio.open_nursery() as self._nursery:
            self._restore()
            task_status.started()
            await trio.sleep_forever()

    def hold(self, path: bytes, name: WorkdirName, holder: Process | Volume) -> WorkdirRecord:
        """Note who holds the directory from now on. Raises ``IndexUnwritableError``."""
        now = time.time()
        old = self.records.get(path)
        record = WorkdirRecord(
            name.role,
            name.resource_id,
            created_seconds=old.created_seconds if old else now,
            acquired_seconds=now,
            acquisitions=old.acquisitions + 1 if old else 1,
        )
        if isinstance(holder, Volume):
            record.pid_started_ticks, record.command = HELD_BY_VOLUME, f"{holder.id} {holder.pod}"
        else:
            record.pid, record.pid_started_ticks, record.command = holder.pid, holder.started_ticks, holder.command
        self.records.put(path, record)
        self.events.emit(
            "workdir-acquired", path=os.fsdecode(path), pid=record.pid, command=record.command, uid=self.tree.owner(path)
        )
        if isinstance(holder, Process):
            self._watch(holder, path)
        return record

    def holder(self, path: bytes, record: WorkdirRecord | None) -> str | None:
        """Return in words who holds the directory with this record; None if nobody does."""
        if record is None:
            return None
        if record.volume:
            return f"pod {record.command.partition(' ')[2]}"
        if record.pid and process_of(record).is_alive():
            return f"pid {record.pid} ({record.command})"
        if self._lease_is_open(path):
            return f"a process that {record.command} started (it has {LEASE_FILE.decode()} open)"
        return None

    def holder_gone(self, path: bytes, record: WorkdirRecord) -> None:
        """Record that no process or volume holds the directory. If its lease file is open, the last close ends the hold.

        After an error nothing is recorded.
        """
        if record.volume:
            record.pid_started_ticks = 0
        if self._lease_is_open(path):
            record.pid = 0
            self.records.put(path, record)
        else:
            self.released(path, record)

    def released(self, path: bytes, record: WorkdirRecord) -> None:
        """Record that nobody holds the directory any more: its retention time begins. Raises ``IndexUnwritableError``."""
        record.pid = 0
        record.released_seconds = time.time()
        self.records.put(path, record)
        self.events.emit("workdir-released", path=os.fsdecode(path), uid=self.tree.owner(path))
        self.begin_retention()

    async def unwatch_others(self) -> None:
        """Stop waiting for processes that hold nothing any more."""
        before, slices = set(self._watched), Slices()
        self._new_holders.clear()
        holders = set()
        for _, record in self.records.listed():
            holders.add(process_of(record))
            await slices.pause()
        for process in before - holders - self._new_holders:
            if process in self._watched:
                self._watched.pop(process).cancel()
                self._paths.pop(process, None)

    def forget(self, path: bytes, record: WorkdirRecord) -> None:
        """Forget a directory that is gone, whoever has got it."""
        self._paths.get(process_of(record), set()).discard(path)

    def _watch(self, process: Process, path: bytes) -> None:
        """Wait for the end of a process, with one task and one descriptor however many directories it holds."""
        assert self._nursery is not None, "the working directories are not being watched over"
        self._new_holders.add(process)
        self._paths.setdefault(process, set()).add(path)
        if process not in self._watched:
            scope = self._watched[process] = trio.CancelScope()
            self._nursery.start_soon(self._wait_for_end, process, scope)

    async def _wait_for_end(self, process: Process, scope: trio.CancelScope) -> None:
        with scope:
            await process.wait_end()
            while problems := await self._note_end(process):
                _log.warning("can't note yet that pid %d has ended: %s", process.pid, "; ".join(problems))
                await trio.sleep(RETRY_SECONDS)
        if self._watched.get(process) is scope:
            del self._watched[process]
            self._paths.pop(process, None)

    async def _note_end(self, process: Process) -> list[str]:
        """Record for all directories of an ended process that it is gone; return the first errors."""
        problems, slices = [], Slices()
        async with self._noting:
            paths, failed = self._paths.get(process, set()), set()
            while paths:  # another one may come while others have their turn
                path = paths.pop()
                record = self.records.get(path)
                try:
                    if record is not None and process_of(record) == process:
                        self.holder_gone(path, record)
                except TRANSIENT as problem:
                    problems.append(f"{os.fsdecode(path)}: {problem}")
                    failed.add(path)
                await slices.pause()
            paths |= failed
        return problems[:_TOLD_AT_ONCE]

    def _lease_is_open(self, path: bytes) -> bool:
        inode = self.tree.lease_inode(path)
        node = self.nodes.of_backing(inode) if inode else None
        return node is not None and node.opened is not None

    def _restore(self) -> None:
        """Watch holders that still live after a start, count the others as released now, and restore missing records."""
        for path in self.tree.existing():
            name = WorkdirName.parse(path.rsplit(b"/", 1)[-1])
            assert name is not None
            self.records.restore(path, name)
        for path, record in self.records.listed():
            if not self.tree.exists(path):
                self.records.discard(path)
            elif self.holder(path, record) is not None:
                if record.pid:
                    self._watch(process_of(record), path)
            elif not record.released_seconds:
                self.released(path, record)


def holder_of(record: WorkdirRecord) -> Process | Volume:
    """Return who a record names as holder."""
    return Volume(record.volume, record.command.partition(" ")[2]) if record.volume else process_of(record)


def process_of(record: WorkdirRecord) -> Process:
    """Return the process that a record names as holder. The number 0 stands for none."""
    return Process(record.pid, record.pid_started_ticks, record.command)
