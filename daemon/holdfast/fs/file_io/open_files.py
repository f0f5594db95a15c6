"""The open nodes: looked up by handle, used inside the daemon, changed, and closed with the last handle.

A node is open from the moment its backing descriptor exists until the kernel has released its last handle, and nobody inside
the daemon uses the descriptor any more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.fs.file_io.backing_file import open_local
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.passthrough import Passthrough
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.inodes.attributes import NamelessStat, Stat
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.entry_updates import EntryUpdates
from holdfast.fs.inodes.nodes import Node, NodeTable
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.store import Orphanage


class OpenFiles:
    """All open nodes. ``closed`` is called with each node whose last handle went."""

    def __init__(
        self,
        nodes: NodeTable,
        directories: Directories,
        updates: EntryUpdates,
        passthrough: Passthrough,
        writes: PassthroughWrites,
        handles: HandleTable,
        orphanage: Orphanage,
        closed: Callable[[Node], None],
    ) -> None:
        self._nodes = nodes
        self._directories = directories
        self._updates = updates
        self._passthrough = passthrough
        self._writes = writes
        self._handles = handles
        self._orphanage = orphanage
        self._closed = closed

    def of_handle(self, node_id: int) -> OpenFile:
        """Return the open file that the kernel means by the handle ``node_id``; it may have forgotten the node."""
        node = self._nodes.known(node_id)
        if node is None or node.opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return node.opened

    @contextmanager
    def descriptor_of(self, node: Node) -> Iterator[int]:
        """Give a descriptor of a node that is local, open or not, and keep the node from being evicted meanwhile.

        Raises ``OSError``, and ``CorruptEntryError`` when an earlier daemon had it open and it is out of reach since.
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
        """Return the attributes of an open node; None when it isn't open, or its bytes are still to come."""
        if node.opened is None:
            return None
        node.opened.check_reachable()
        stat = os.fstat(node.opened.fd)
        arrival = node.opened.arrival
        if arrival is not None and not arrival.finished and not arrival.failed:
            return None
        return stat if node.is_named else NamelessStat(stat)

    def before_change(self, opened: OpenFile, *, drop_privileges: bool = True) -> None:
        """Note, before the first change since the last send, that the bytes change."""
        if opened.privileged and drop_privileges:
            opened.drop_privileges()
        if opened.unsent:
            return
        opened.changed()
        self._updates.note_change(opened.node, opened.fd)

    def truncate(self, opened: OpenFile, size_bytes: int, *, drop_privileges: bool = True) -> None:
        """ftruncate(2) of a file that is whole."""
        self.before_change(opened, drop_privileges=drop_privileges)
        os.ftruncate(opened.fd, size_bytes)

    def release(self, opened: OpenFile) -> None:
        """A handle goes, of the kernel's or of somebody's inside the daemon. With the last one the file is closed."""
        opened.uncount()
        node = opened.node
        if opened.handles > 0 or node.opened is not opened:
            return
        inode = node.backing if node.is_named else os.fstat(opened.fd).st_ino
        self._writes.settle(opened)
        self._passthrough.end(opened)
        self._handles.closed(opened)
        opened.close()
        node.opened = None
        self._closed(node)
        if not node.is_named:
            self._orphanage.release(inode)
            self._nodes.unbind(node)
        self._nodes.release(node)
