"""Taking over from an earlier daemon what the kernel goes on using: nodes, and the files that are open.

A file that was open is opened again and keeps its backing id, which the kernel holds it by. One that was still arriving is
fetched anew. One whose last handle was released, but not seen to, is seen to now. What was written meanwhile is known by
size and time, as ever (``unseen``).
"""

from __future__ import annotations

import logging
import os

from holdfast.errors import HoldfastError, StaleNodeError
from holdfast.fs.file_io.descriptors import open_local
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.takeover.node_recovery import NodeRecovery
from holdfast.session import OpenRecord, version_mark

_log = logging.getLogger("holdfast.fs")


class Takeover:
    """Carried out once, before the first request is read. ``run`` needs the fetcher; ``finish`` all background work."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._core = files.core
        self._released: list[OpenFile] = []

    async def run(self) -> int:
        """Find the nodes and open the files; return how many files are open."""
        core = self._core
        await NodeRecovery.of(core)
        records = list(core.session.opens.records())
        for record in records:
            opened = await self._opened(record)
            opened.handles = max(1, record.handles)
            opened.has_kind = True
            opened.slot = record.slot
            opened.exclusive = record.exclusive
            opened.writes = record.writes
            opened.backing_id = record.backing_id or None
            if record.writes and opened.arrival is None:  # a write waits until all is here: nothing was written
                self._files.unseen.resume(opened)
            opened.served = bool(record.version)
            if not record.handles:
                self._released.append(opened)
        open_inodes = {node.backing for node in core.nodes.all() if node.opened is not None and not node.is_named}
        for inode in core.store.orphanage.inodes() - open_inodes:
            core.store.orphanage.release(inode)
            node = core.nodes.of_backing(inode)
            if node is not None:
                core.nodes.unbind(node)  # the number is free: another file may get it
        return len(records)

    def finish(self) -> None:
        """Carry out the releases that the earlier daemon had begun."""
        for opened in self._released:
            self._files.release(opened)

    async def _opened(self, record: OpenRecord) -> OpenFile:
        try:
            node = self._core.nodes.get(record.node_id)
            return await self._reopened(node, record.version)
        except (HoldfastError, OSError) as problem:
            _log.warning("a file that was open (node %d) can't be opened again: %s", record.node_id, problem)
            return self._lost(record)

    async def _reopened(self, node: Node, version: int) -> OpenFile:
        core = self._core
        if not node.backing and node.is_named:
            await self._check_version(node, version)
            opened = await self._files.opens.open(node, os.O_RDONLY)
            if opened.backing_id is not None:  # the kernel's handles are of the other kind
                self._files.opens.backing.unregister(node.id, opened.backing_id)
            return opened
        if node.is_named:
            opened = open_local(core, node, writable=False)
        else:
            fd = core.store.orphanage.open(node.backing)
            opened = OpenFile(node, fd, os.fstat(fd), writable=True)
        node.opened = opened
        return opened

    async def _check_version(self, node: Node, version: int) -> None:
        """Raise ``StaleNodeError`` when the store has another version by now than the one that was read of."""
        if not version or node.parent is None:
            return
        place = self._core.directories.place(node.parent)
        known = await self._files.beliefs.known_object(place, node.name)
        if known is None or version_mark(known.etag) != version:
            self._core.nodes.drop_path(place.child_path(node.name))
            raise StaleNodeError("it was replaced or removed in the store while it was read")

    def _lost(self, record: OpenRecord) -> OpenFile:
        """Return what stands for a file whose bytes are out of reach: whoever reads it by the daemon is told so.

        Who wrote to it is too. A file without a name that is no orphan has lost a write-once name to another writer.
        """
        core = self._core
        node = core.nodes.known(record.node_id) or core.nodes.inherit(record.node_id, 0, False, [])
        name, fd = core.store.staging.create(0)
        core.store.staging.discard(name)
        node.opened = OpenFile(node, fd, os.fstat(fd), writable=True)
        node.opened.unreachable = True
        node.opened.lost = record.writes and not node.is_named
        return node.opened
