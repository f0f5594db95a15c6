"""The open nodes: handles for the kernel, use inside the daemon, changes, and close with the last handle.

A node is open from the moment its backing descriptor exists until the kernel has released its last handle and the descriptor
has no user inside the daemon.

The kernel's handles are recorded for the next daemon. Every OPEN, CREATE and RELEASE counts once, even if it is resent. It
is counted in the last step before its reply, without an await between. So of all requests counted when a daemon was killed,
at most one had no reply.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.fs.file_io.commit import note_writer
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.attributes import NamelessStat, Stat, of_file
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.hot_files import LONG_PATIENCE_SECONDS
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile, open_local, without_privileges
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.session import NUMBER_MASK, SessionTables, version_mark
from holdfast.store import QUICKLY_FREED_BYTES
from holdfast.system.file_id import file_stat

_CHANGES_NOTHING = 1 << 63
"""The bit of a handle's number that no node's id has."""


class Handle(NamedTuple):
    """An open file for the kernel: whether its open may change bytes, and whether the kernel should send FLUSH for it."""

    opened: OpenFile
    changes: bool
    sends_flush: bool

    @property
    def number(self) -> int:
        """The number of the handle: its node's id, so that a daemon that did not open the file understands it."""
        return self.opened.node.id | (0 if self.changes else _CHANGES_NOTHING)


def node_of(handle: int) -> int:
    """Return the node id of a handle by its number."""
    return handle & ~_CHANGES_NOTHING


def changes_nothing(handle: int) -> bool:
    """Say whether the open behind the handle can change nothing and has not, so that its close has nothing to send."""
    return handle & _CHANGES_NOTHING != 0


class HandleTable:
    """The kernel's handles, in ``OpenTable`` for the next daemon. ``OpenFile.slot`` is the file's slot in the table."""

    def __init__(self, session: SessionTables) -> None:
        self._table = session.opens
        self._counted = session.records.numbers() | session.opens.numbers()
        session.records.add_numbers(self._counted)

    def is_counted(self, request: int) -> bool:
        """Say whether an earlier daemon has counted the request."""
        return request & NUMBER_MASK in self._counted

    def opened(self, opened: OpenFile, request: int, *, writes: bool, executes: bool) -> None:
        """Count one more handle, just before the reply to this OPEN or CREATE. ``opened`` counts it already."""
        table = self._table
        if opened.slot == 0:
            slot = table.add(
                opened.node.id,
                opened.backing_id or 0,
                writes=writes,
                exclusive=opened.exclusive,
                uid=opened.charged_uid,
            )
            opened.count_for_next_daemon(slot)
        elif self.is_counted(request):
            opened.uncount()
            return
        elif writes and not opened.writes:
            table.note_writes(opened.slot)
        if opened.has_strangers:
            table.note_strangers(opened.slot)
        if writes:
            opened.note_writing_handle()
        if executes:
            opened.begin_running()
            table.count_programs(opened.slot, 1)
        table.count(opened.slot, 1, request)

    def note_served(self, opened: OpenFile) -> None:
        """Call just before bytes of a fetch under way are served: the rest must be of the same version."""
        if opened.slot and opened.arrival is not None and not opened.served:
            self._table.note_version(opened.slot, version_mark(opened.arrival.known.etag))
        opened.served_bytes()

    def released(self, opened: OpenFile, request: int, *, executes: bool | None) -> None:
        """Count one handle fewer. If it is not known whether it ``executes``, it does so if all that are left do."""
        if executes is None:
            executes = opened.programs >= opened.handles - opened.leaving
        if executes and opened.programs:
            opened.end_running()
            self._table.count_programs(opened.slot, -1)
        if opened.slot:
            self._table.count(opened.slot, -1, request)

    def lost(self, opened: OpenFile) -> int:
        """Count no handles any more, because the kernel has none; return how many were counted."""
        return self._table.clear(opened.slot) if opened.slot else 0

    def closed(self, opened: OpenFile) -> None:
        """Free the slot of a file whose last release has been processed."""
        if opened.slot:
            self._table.free(opened.slot)
            opened.count_for_next_daemon(0)


class OpenFiles:
    """All open nodes. ``closed`` is called with each node after its last handle."""

    def __init__(
        self,
        base: Foundation,
        times: ObjectTimes,
        passthrough: Passthrough,
        handles: HandleTable,
        limits: OpenLimits,
        closed: Callable[[Node], None],
    ) -> None:
        self._nodes, self._directories, self._policy, self._hot = base.nodes, base.directories, base.policy, base.hot
        self._losses = base.losses
        self._orphanage, self._freeing = base.parts.store.orphanage, base.parts.store.freeing
        self._times = times
        self._passthrough, self._writes = passthrough, passthrough.writes
        self._handles = handles
        self._limits = limits
        self._closed = closed

    def of_handle(self, handle: int) -> OpenFile:
        """Return the open file of a handle by its number. The kernel may have forgotten the node. Raises EBADF."""
        node = self._nodes.known(node_of(handle))
        if node is None or node.opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return node.opened

    def hand_out(
        self,
        opened: OpenFile,
        request: int,
        caller: Caller,
        *,
        changes: bool,
        executes: bool = False,
        sends: bool | None = None,
    ) -> Handle:
        """Give the kernel a handle of ``opened``, which counts it already: the last step of OPEN and CREATE.

        The reply to ``request`` must follow at once.

        ``changes``: this open may change the bytes, or has: by O_TRUNC, which needs no writable descriptor. ``executes``: a
        program is to run. ``sends``: the file is sent (``self.sends``); None: not known. On an error the kernel gets no
        handle, and it is no longer counted. Raises ``LimitReachedError``.
        """
        try:
            if caller.uid and not opened.is_handed_out:
                self._limits.charge(opened, caller.uid)
            self._passthrough.hand_out(opened, caller.uid, writable=changes)
            sends_flush = changes and (self.sends(opened) if sends is None else sends)
            if sends_flush:
                note_writer(opened, caller.pid)
            self._handles.opened(opened, request, writes=changes, executes=executes)
        except BaseException:
            self.release(opened)
            raise
        return Handle(opened, changes, sends_flush)

    def sends(self, opened: OpenFile) -> bool:
        """Say whether the file is sent to a store under its present names, or would be had it not lost its name."""
        return opened.lost or bool(self._policy.sent_names(opened.node.names()))

    @contextmanager
    def descriptor_of(self, node: Node) -> Iterator[int]:
        """Yield a descriptor of a local node, open or not. The node is not evicted meanwhile.

        Raises ``OSError``, and ``CorruptEntryError`` for a file that could not be reopened after a takeover.
        """
        opened = node.opened
        if opened is None:
            opened = node.opened = open_local(self._directories, node, writable=False)
        opened.check_reachable()
        opened.count()
        try:
            yield opened.fd
        finally:
            self.release(opened)

    def stat(self, node: Node) -> Stat | None:
        """Return the attributes of an open node; None if it isn't open or is still being fetched."""
        if node.opened is None:
            return None
        node.opened.check_reachable()
        stat = file_stat(node.opened.fd)
        arrival = node.opened.arrival
        if arrival is not None and not arrival.finished and not arrival.failed:
            return None
        return of_file(node, stat) if node.is_named else NamelessStat(stat)

    def before_change(self, opened: OpenFile, *, drop_privileges: bool = True) -> None:
        """Mark the file changed, before the first change since the last send."""
        if opened.privileged and drop_privileges:
            self._hot.chmod(opened, without_privileges(os.fstat(opened.fd).st_mode))
            opened.dropped_privileges()
        self.mark_changed(opened)

    def mark_changed(self, opened: OpenFile) -> None:
        """Mark the file changed unless it is. Call it after a change that awaited: the file may have been sent meanwhile."""
        if not opened.unsent:
            self._writes.changed(opened, file_stat(opened.fd))

    async def truncate(self, opened: OpenFile, size_bytes: int, *, drop_privileges: bool = True) -> None:
        """ftruncate(2) of a file that is complete. Raises ``FileBusyError``."""
        await self.settle_privileges(opened)
        self.before_change(opened, drop_privileges=drop_privileges)
        if self._takes_time(opened, size_bytes):
            try:
                await self._hot.call(opened, "truncate", [], size_bytes, patience=LONG_PATIENCE_SECONDS)
            finally:
                self.mark_changed(opened)
        else:
            os.ftruncate(opened.fd, size_bytes)
        if not size_bytes:
            await self._losses.truncated(opened.fd)

    async def settle_privileges(self, opened: OpenFile) -> None:
        """Return when set-id bits, if there are any, can be cleared without waiting. Raises ``FileBusyError``."""
        if opened.privileged and self._hot.is_hot(opened):
            await self._hot.settle(opened.inode)

    def _takes_time(self, opened: OpenFile, size_bytes: int) -> bool:
        """Say whether a user decides how long it takes to give the file this size."""
        if self._hot.is_hot(opened):
            return True
        stat = os.fstat(opened.fd)
        return stat.st_size > size_bytes and stat.st_blocks * 512 - size_bytes > QUICKLY_FREED_BYTES

    def release(self, opened: OpenFile) -> None:
        """Release a handle of the kernel or of a user inside the daemon. The last one closes the file."""
        opened.uncount()
        node = opened.node
        if opened.handles > 0 or node.opened is not opened:
            return
        if opened.stamp is not None:
            self._writes.end(opened)
        if opened.is_handed_out:
            self._passthrough.end(opened)
            self._handles.closed(opened)
        if opened.charged_uid:
            self._limits.refund(opened)
        is_named = node.parent is not None
        if not is_named:
            self._orphanage.release(opened.inode)
        if opened.writes or not is_named:
            self._freeing.close(opened.fd)
        else:
            os.close(opened.fd)
        if opened.arrival is not None:
            opened.arrived()
        node.opened = None
        if opened.mtime_shown_ns:  # the entry is not OPEN any more, or a crash now would make the new time a change
            self._times.released(opened.inode)
        self._closed(node)
        if not is_named:
            self._nodes.unbind(node)
        self._nodes.release(node)
