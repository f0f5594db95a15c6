"""Takeover of nodes and open files that the kernel still uses from an earlier daemon.

An open file is reopened and keeps its backing id, which the kernel uses. A file that was still being fetched is fetched
again. A file whose last handle was released, but whose release was not finished, is finished now, and so is one that the
kernel no longer has. Bytes written meanwhile are detected by size and time as usual (``passthrough``).
"""

from __future__ import annotations

import logging
import os

import trio

from holdfast.errors import HoldfastError, StaleNodeError
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile, open_local
from holdfast.session import OpenRecord, version_mark
from holdfast.system.file_id import NO_FILE, FileId, file_stat

_log = logging.getLogger("holdfast.fs")


class Takeover:
    """Runs once: ``run`` and ``finish`` before the first request is read, ``prune`` after that.

    ``run`` needs the fetcher, ``finish`` all background work.
    """

    def __init__(self, base: Foundation, files: FileSystem) -> None:
        self._nodes = base.nodes
        self._directories = base.directories
        self._unlinks = base.unlinks
        self._recovery = base.recovery
        self._store = base.parts.store
        self._open_table = base.parts.session.opens
        self._opening = files.opening
        self._releasing = files.releasing
        self._invalidation = base.invalidation
        self._passthrough = files.passthrough
        self._writes = files.passthrough_writes
        self._limits = files.open_limits
        self._revalidation = files.revalidation
        self._released: list[OpenFile] = []
        self._inherited: list[int] = []

    async def run(self) -> int:
        """Find the nodes and reopen the files; return the number of open files."""
        records = list(self._open_table.records())
        in_use = {record.node_id for record in records}
        names = await trio.to_thread.run_sync(self._recovery.names_in, self._store.tree, in_use)
        self._unlinks.inherit(names)
        self._recovery.load(self._nodes, names, in_use)
        for record in records:
            opened = await self._opened(record)
            handles = self._handles(record)
            opened.resume(
                handles=max(1, handles),
                programs=record.programs,
                slot=record.slot,
                exclusive=record.exclusive,
                writes=record.writes,
                backing_id=record.backing_id or None,
                served=bool(record.version),
            )
            if record.backing_id:
                node = opened.node
                node.cache_is_stale = False  # what is open in passthrough has no pages in the kernel
            if record.uid:
                self._limits.resume(opened, record.uid)
                opened.passed_on_from(record.uid)
            if record.has_strangers:
                opened.passed_on_from_several()
            if record.writes and opened.arrival is None:  # writes wait for the whole fetch, so nothing was written
                self._writes.resume(opened)
            self._passthrough.resume(opened)
            if not handles:
                self._released.append(opened)
            self._inherited.append(record.node_id)
        self._free_orphans()
        return len(records)

    def finish(self) -> None:
        """Finish the releases that the earlier daemon had begun."""
        for opened in self._released:
            self._releasing.finish(opened)

    async def prune(self) -> None:
        """Let the kernel forget those of the open files that nobody uses, so that their handles are released.

        A process may be killed while its open waits for this daemon. If an earlier one had counted that open, the kernel
        has no handle of it, and takes the request back as long as it has not been read.
        """
        if self._inherited:
            await self._invalidation.caught_up()
            self._invalidation.prune(self._inherited)

    def _handles(self, record: OpenRecord) -> int:
        """Return how many handles the kernel has.

        It has none of a node that it does not have, unless it is about to learn of the node by the answer to a CREATE.
        """
        if record.may_be_unanswered or self._invalidation.kernel_has(record.node_id):
            return record.handles
        return 0

    def _free_orphans(self) -> None:
        """Release nameless files that are not open, so that their inode numbers can be reused."""
        open_inodes = {node.backing for node in self._nodes.all() if node.opened is not None and not node.is_named}
        for inode in self._store.orphanage.inodes() - open_inodes:
            self._store.orphanage.release(inode)
            node = self._nodes.of_backing(inode)
            if node is not None and not node.is_named:  # it may have been about to lose its last name
                self._nodes.unbind(node)

    async def _opened(self, record: OpenRecord) -> OpenFile:
        try:
            node = self._nodes.get(record.node_id)
            return await self._reopened(node, record.version)
        except (HoldfastError, OSError) as problem:
            _log.warning("a file that was open (node %d) can't be opened again: %s", record.node_id, problem)
            return self._lost(record)

    async def _reopened(self, node: Node, version: int) -> OpenFile:
        if not node.backing and node.is_named:
            await self._check_version(node, version)
            return await self._opening.acquire(node, os.O_RDONLY)
        if node.is_named:
            opened = open_local(self._directories, node, writable=False)
        else:
            fd = self._store.orphanage.open(node.backing)
            opened = OpenFile(node, fd, file_stat(fd), writable=True)
        node.opened = opened
        return opened

    async def _check_version(self, node: Node, version: int) -> None:
        """Raise ``StaleNodeError`` if the store no longer has the version of which part was read."""
        if not version or node.parent is None:
            return
        known = await self._revalidation.known_object_of(node)
        if known is None or version_mark(known.etag) != version:
            self._nodes.drop_path(self._directories.path(node.parent, node.name))
            raise StaleNodeError("it was replaced or removed in the store while it was read")

    def _lost(self, record: OpenRecord) -> OpenFile:
        """Return a placeholder for a file whose bytes are out of reach: reads through the daemon and commits fail.

        A nameless file that is no orphan was removed while the disk had no room for an orphan's name, or its disk is lost;
        otherwise it has lost a write-once name to another writer.
        """
        node = self._nodes.known(record.node_id) or self._nodes.inherit(record.node_id, NO_FILE, False, [])
        name, fd = self._store.staging.create(0)
        self._store.staging.discard(name)
        opened = node.opened = OpenFile(node, fd, file_stat(fd), writable=True)
        with_disk = self._store.others.has_lost(FileId(record.node_id))
        has_lost_name = not node.is_named and record.node_id not in self._unlinks.gone
        opened.put_out_of_reach(lost=record.writes and (with_disk or has_lost_name), with_disk=with_disk)
        return opened
