"""The open nodes: lookup by handle, use inside the daemon, changes, and close with the last handle.

A node is open from the moment its backing descriptor exists until the kernel has released its last handle and the descriptor
has no user inside the daemon.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.open_limits import OpenLimits
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.attributes import NamelessStat, Stat, of_file
from holdfast.fs.inodes.hot_files import LONG_PATIENCE_SECONDS
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile, open_local, without_privileges
from holdfast.fs.remote_view.object_times import ObjectTimes
from holdfast.store import QUICKLY_FREED_BYTES
from holdfast.system.file_id import file_stat


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
        self._nodes, self._directories, self._updates, self._hot = base.nodes, base.directories, base.updates, base.hot
        self._losses = base.losses
        self._orphanage, self._freeing = base.parts.store.orphanage, base.parts.store.freeing
        self._times = times
        self._passthrough, self._writes = passthrough, passthrough.writes
        self._handles = handles
        self._limits = limits
        self._closed = closed

    def of_handle(self, node_id: int) -> OpenFile:
        """Return the open file for the kernel's handle ``node_id``. The kernel may have forgotten the node. Raises EBADF."""
        node = self._nodes.known(node_id)
        if node is None or node.opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return node.opened

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
        if opened.unsent:
            return
        opened.changed()
        self._updates.note_change(opened.node, file_stat(opened.fd))

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
