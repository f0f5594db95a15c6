"""The file system without FUSE: its parts, put together, and the few operations that need several of them."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.file_io.cache_miss import CacheMiss
from holdfast.fs.file_io.commit import Committer
from holdfast.fs.file_io.flush_filter import note_writer
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.opens import OpenFiles
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.file_io.read_write import ReadWrite
from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.core import Caller, Core
from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.integrity.index_rebuild import IndexRebuild
from holdfast.fs.integrity.scrubber import Scrubber
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.namespace.attr_ops import Status
from holdfast.fs.namespace.create import Creation
from holdfast.fs.namespace.listing import Listings
from holdfast.fs.namespace.lookup import Found, Lookup
from holdfast.fs.namespace.remove import Removal
from holdfast.fs.namespace.rename import Renames
from holdfast.fs.namespace.xattrs import ExtendedAttributes
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.fs.remote_view.whiteouts import Whiteouts
from holdfast.fs.writeback.publisher import Publisher
from holdfast.fs.writeback.writeback_queue import WritebackQueue

__all__ = ["Caller", "FileSystem", "Node", "OpenFile"]


class FileSystem:
    """All operations, by nodes. ``run`` serves what goes on in the background."""

    def __init__(self, core: Core) -> None:
        self.core = core
        intents = CreateHints(time.monotonic)
        publisher = Publisher(core, intents)
        self.presence = Invalidation(core)
        self.verifier = Verifier(core)
        self._scrubber = Scrubber(core, self.verifier)
        whiteouts = Whiteouts(core)
        self.beliefs = beliefs = Revalidation(core, whiteouts)
        self.lookup = Lookup(core, intents, beliefs)
        self._prefetcher = Prefetcher(core)
        self.unseen = unseen = PassthroughWrites(core)
        self.handles = HandleTable(core.session)
        self.opens = OpenFiles(core, beliefs, self.verifier, self._prefetcher, unseen, self.handles)
        self.backlog = WritebackQueue(core, publisher)
        self.rebuilder = IndexRebuild(core, self.verifier, self.backlog)
        self.committer = Committer(core, self.opens, publisher, self.backlog, unseen, self.presence)
        self.creation = Creation(core, beliefs, intents)
        self.removal = Removal(core, publisher, intents, whiteouts)
        self.renames = Renames(core, publisher, self.backlog, self.removal, self.opens, unseen, intents)
        self.listings = Listings(core, self.lookup, whiteouts)
        self.status = Status(core, self.opens, self.lookup, beliefs, self.committer, unseen)
        self.xattrs = ExtendedAttributes(core, self.opens)
        self.data = ReadWrite(self.opens, core.room, CacheMiss(core, beliefs), self.presence, self.handles)
        self._late: trio.Nursery | None = None
        self._comparing: set[trio.Event] = set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve background work until cancelled."""
        async with trio.open_nursery() as self._late:
            await self.unseen.take_stock()
            self._late.start_soon(self.verifier.run)
            self._late.start_soon(self.backlog.run)
            self._late.start_soon(self.rebuilder.run)
            self._late.start_soon(self._scrubber.run)
            await self._late.start(self._prefetcher.run)
            task_status.started()
            await trio.sleep_forever()

    def start_soon(self, action: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Do something in the background."""
        assert self._late is not None
        self._late.start_soon(action, *arguments)

    def end(self, *, for_good: bool = True) -> None:
        """No request comes any more: the mount is gone, or another daemon serves it from now on."""
        if for_good:
            self.unseen.settle_all()
        self.core.directories.close()

    def created(self, node: Node, stat: Stat) -> Found:
        """Return what the kernel is to be told of a name that was made just now; it may keep both for the same time."""
        seconds = self.status.seconds(node)
        return Found(node, stat, seconds, seconds)

    def hand_out(self, opened: OpenFile, request: int, caller: Caller, *, reads_only: bool, is_new: bool = False) -> bool:
        """The reply to this OPEN or CREATE (``is_new``) comes next; return whether the kernel is to tell of closes.

        After an error the kernel gets no handle, and ``opened`` has lost it.
        """
        tells = not reads_only and self.committer.sends(opened)
        if tells:
            note_writer(opened, caller.pid)
        try:
            if is_new:
                self.opens.handed_out(opened, writable=True)
            self.handles.opened(opened, request, writes=not reads_only)
        except BaseException:
            self.opens.release(opened)
            raise
        return tells

    async def send_new(self, node: Node) -> None:
        """Send a file that was made without being opened, by mknod(2), where files are sent. Raises what a close may."""
        if node.backing and any(self.core.sends(self.core.directories.place(parent), name) for parent, name in node.names()):
            opened = await self.opens.open(node, os.O_WRONLY)
            try:
                await self.committer.commit(opened)
            finally:
                self.opens.release(opened)

    def release(self, opened: OpenFile) -> None:
        """The kernel drops a handle. Bytes that are still unsent with the last one are sent in the background."""
        if not self.unseen.compare_nowait(opened) or self.committer.needs_late_commit(opened):
            opened.leaving += 1
            compared = trio.Event()
            self._comparing.add(compared)
            self.start_soon(self._release_late, opened, compared)
            return
        if opened.handles == 1:
            self.committer.closed(opened)
        self.opens.release(opened)

    async def settle(self) -> None:
        """Return when the daemon knows of every file that has been closed by now what became of it.

        The kernel tells of a close after the call has returned, and a large file is then hashed again.
        """
        await self.presence.caught_up()
        for compared in list(self._comparing):
            await compared.wait()

    async def sync_directory(self, node: Node) -> None:
        """fsync(2) of a directory: its names are on the disk, and the store has been told of what was deleted in it."""
        core = self.core
        place = core.directories.place(node)
        await core.sync_directory(node)
        if place.zone.is_store:
            deletions = core.remote_of(place.zone).deletions
            prefix = place.path + b"/"
            await deletions.flush([path for path in deletions.paths() if path.startswith(prefix)])

    async def _release_late(self, opened: OpenFile, compared: trio.Event) -> None:
        try:
            await self._commit_late(opened, compared)
        except (HoldfastError, OSError) as problem:
            self.committer.failed_late(opened, problem)
        opened.leaving -= 1
        self.opens.release(opened)

    async def _commit_late(self, opened: OpenFile, compared: trio.Event) -> None:
        try:
            await self.unseen.compare(opened)
        finally:
            self._comparing.remove(compared)
            compared.set()
        await self.committer.commit(opened)
        if opened.handles == 1:
            self.committer.closed(opened)
