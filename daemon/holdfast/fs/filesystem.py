"""The file system without FUSE: all operations by node, in groups."""

from __future__ import annotations

import os
from typing import Protocol

import trio

from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.attributes import Stat
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.integrity.index_rebuild import IndexRebuild
from holdfast.fs.integrity.scrubber import Scrubber
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.namespace.attr_ops import AttrOps, Changes
from holdfast.fs.namespace.create import Creation, DirectoryRules, Making, NewEntries
from holdfast.fs.namespace.link import Linking, LinkUpload
from holdfast.fs.namespace.listing import Listings
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.rename import Renaming
from holdfast.fs.namespace.rmdir import Rmdir
from holdfast.fs.namespace.unlink import Unlinking
from holdfast.fs.namespace.xattrs import ExtendedAttributes
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.sending import Sending


class Tenants(DirectoryRules, Protocol):
    """Rules and events of the directories in the mount (``workdirs``)."""

    def file_closed(self, node: Node) -> None:
        """Note that the last handle of a file was closed."""


class FileSystem:
    """Groups of operations, and the background work (``run``)."""

    def __init__(self, base: Foundation, tenants: Tenants) -> None:
        self._base = base
        views = Views(base)
        sending = Sending(base, views)
        self.verifier = Verifier(base)
        files = Files(base, views, sending, self.verifier, tenants.file_closed)
        link_upload = LinkUpload(base, views, sending, files)
        new = NewEntries(base, views.visibility)
        self._queue = sending.queue
        self._rebuild = IndexRebuild(base, self.verifier, sending.queue)
        self._prefetcher = files.prefetcher
        self.background = files.background
        # by name
        self.lookup = Lookup(base, views)
        self.listings = Listings(base, views, files.prefetcher, self.lookup)
        self.creation = Creation(base, views, files, new)
        self.making = Making(base, views.guard, new, tenants)
        self.linking = Linking(base, views, files, link_upload)
        self.renaming = Renaming(base, views, sending, files, link_upload, self.lookup)
        self.unlinking = Unlinking(base, views.hints, sending.remote_deletes, self.lookup)
        self.removing = Rmdir(base, views)
        self.attrs = AttrOps(base, views, files)
        self.xattrs = ExtendedAttributes(base, files.local_files)
        # by handle
        self.files = files.files
        self.open_limits = files.open_limits
        self.handles = files.handles
        self.opening = files.opening
        self.read_write = files.read_write
        self.committer = files.committer
        self.releasing = files.releasing
        self.local_files = files.local_files
        self.passthrough = files.passthrough
        self.passthrough_writes = files.passthrough_writes
        # about the stores
        self.revalidation = views.revalidation
        self.hints = views.hints
        self.guard = views.guard
        self.scrubber = Scrubber(base, self.verifier)
        self.unsent = sending.unsent

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve background work until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.background.run)
            await trio.to_thread.run_sync(self._base.parts.store.calls.start)
            await self.passthrough_writes.settle_after_start()
            nursery.start_soon(self._base.node_limit.run)
            nursery.start_soon(self.verifier.run)
            nursery.start_soon(self._queue.run)
            nursery.start_soon(self._rebuild.run)
            nursery.start_soon(self.scrubber.run)
            await nursery.start(self._prefetcher.run)
            task_status.started()

    def end(self, *, for_good: bool = True) -> None:
        """Stop: no more requests will arrive. The mount is gone, or, unless ``for_good``, another daemon serves it."""
        if for_good:
            self.passthrough_writes.settle_all()
        self._base.directories.close()

    def forget(self, node_id: int, lookups: int) -> None:
        """Drop so many of the kernel's references to a node."""
        node = self._base.nodes.forget(node_id, lookups)
        if node is not None:
            self.releasing.forgotten(node)

    async def send_new(self, node: Node) -> None:
        """Send a file that mknod(2) made without opening it, if its names are sent. Raises as a close does."""
        if node.backing and self._base.policy.sent_names(node.names()):
            opened = await self.opening.acquire(node, os.O_WRONLY)
            try:
                await self.committer.commit(opened)
            finally:
                self.files.release(opened)

    async def change(
        self, node: Node, changes: Changes, caller: Caller, *, is_open: bool = False, drop_privileges: bool = True
    ) -> Stat:
        """Change attributes, which fetches a file, or sends it (``AttrOps.set``). Raises ``AccessRefusedError`` too.

        truncate(2) by a descriptor, ``is_open``, was allowed by its open.
        """
        if changes.size_bytes is not None and not is_open:
            self.guard.check_open(node, os.O_WRONLY, caller)
        elif node.backing == 0 and not node.is_directory:
            self.guard.check_open(node, os.O_RDONLY, caller)
        return await self.attrs.set(node, changes, drop_privileges=drop_privileges, by_descriptor=is_open, thread=caller.pid)

    async def sync_directory(self, node: Node) -> None:
        """fsync(2) of a directory: its names are on the disk, and deletions in it have been carried out in the store."""
        place = self._base.directories.place(node)
        await self._base.directories.sync(node)
        if place.zone.is_store:
            await self._base.view.flush_deletions(place)
