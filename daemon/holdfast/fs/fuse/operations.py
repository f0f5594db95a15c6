"""FUSE requests, one method each: converts names, numbers and flags of the kernel to calls, and results back. No policy."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from functools import partial

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from holdfast.capacity import Room
from holdfast.fs.file_io.open_files import Handle, changes_nothing
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse.entry_attributes import attributes_of, directory_entry, entry_of
from holdfast.fs.fuse.error_replies import replies
from holdfast.fs.fuse.later_replies import Turns
from holdfast.fs.fuse.request_observer import RequestObserver
from holdfast.fs.fuse.wire_format import listing_flags
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import Attempt
from holdfast.fs.namespace.attr_ops import Changes
from holdfast.fs.namespace.listing import dots
from holdfast.fs.namespace.lookup import Found
from holdfast.kernel import Connection, Fallocation, OpenFlag
from holdfast.telemetry import Counters


class Operations(pyfuse3.Operations):
    """The callbacks for pyfuse3. The kernel's references are counted here, where it gets its replies."""

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(
        self,
        base: Foundation,
        files: FileSystem,
        connection: Connection,
        turns: Turns,
        observer: RequestObserver,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._files = files
        self._nodes, self._node = base.nodes, base.nodes.get
        self._directories = base.directories
        self._invalidation = base.invalidation
        self._rooms = base.rooms
        self._turns = turns
        self.counters: Counters = base.parts.counters
        self.observer = observer

    # --- names -------------------------------------------------------------------------------------------------------

    @replies
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        directory = self._node(parent_inode)
        async with self._turns.names.of(ctx.uid):
            found = await self._files.lookup.find(directory, name, _caller(ctx))
        if isinstance(found, Found):
            self._invalidation.before_attributes(found.node)
            return entry_of(found)
        if not found:
            raise FUSEError(errno.ENOENT)
        nothing = EntryAttributes()
        nothing.entry_timeout = found
        return nothing

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, lookups in inode_list:
            self._files.forget(inode, lookups)

    @replies
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        request, attempt = self._connection.request(), self._attempt()
        parent = self._node(parent_inode)
        create = partial(self._files.creation.file, parent, name, mode, flags, request, _caller(ctx), attempt)
        async with self._turns.names.of(ctx.uid):
            found, handle = await self._room(parent).with_room(create)
        self._answer(request, handle)
        return FileInfo(fh=handle.number), entry_of(found)

    @replies
    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        parent, attempt = self._node(parent_inode), self._attempt()
        make = partial(self._files.making.directory, parent, name, mode & 0o7777, _caller(ctx), attempt)
        async with self._turns.names.of(ctx.uid):
            await self._files.making.before_directory(parent, name)
            made = await self._room(parent).with_room_at_once(make)
        return entry_of(self._files.lookup.new(*made))

    @replies
    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        parent, attempt = self._node(parent_inode), self._attempt()
        make = partial(self._files.making.special, parent, name, mode, rdev, _caller(ctx), attempt)
        async with self._turns.names.of(ctx.uid):
            node, stat = await self._room(parent).with_room_at_once(make)
        async with self._turns.commits.of(ctx.uid):
            await self._files.send_new(node)
        return entry_of(self._files.lookup.new(node, stat))

    @replies
    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        parent, attempt = self._node(parent_inode), self._attempt()
        make = partial(self._files.making.symlink, parent, name, target, _caller(ctx), attempt)
        async with self._turns.names.of(ctx.uid):
            made = await self._room(parent).with_room_at_once(make)
        return entry_of(self._files.lookup.new(*made))

    @replies
    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        node, directory, attempt = self._node(inode), self._node(new_parent_inode), self._attempt()
        link = partial(self._files.linking.link, node, directory, new_name, _caller(ctx), attempt)
        room = self._room(directory)
        async with self._turns.names.of(ctx.uid):
            await room.keep_spare()
            stat = await (link() if self._directories.place(directory).zone.sends else room.with_room(link))
        return entry_of(self._files.lookup.new(node, stat))

    @replies
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        directory, attempt = self._node(parent_inode), self._attempt()
        async with self._turns.names.of(ctx.uid):
            await self._files.unlinking.unlink(directory, name, attempt)

    @replies
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        directory, attempt = self._node(parent_inode), self._attempt()
        async with self._turns.names.of(ctx.uid):
            await self._files.removing.rmdir(directory, name, attempt)

    @replies
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        source, target, attempt = self._node(parent_inode_old), self._node(parent_inode_new), self._attempt()
        async with self._turns.names.of(ctx.uid):
            await self._room(target).keep_spare()
            await self._files.renaming.rename(source, name_old, target, name_new, flags, _caller(ctx), attempt)

    @replies
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return self._files.attrs.readlink(self._node(inode))

    # --- attributes --------------------------------------------------------------------------------------------------

    @replies
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        node = self._node(inode)
        async with self._turns.names.of(ctx.uid):
            await self._files.attrs.learn(node)
        self._invalidation.before_attributes(node)
        return attributes_of(node, self._files.attrs.get(node), 0.0, self._directories.seconds(node))

    @replies
    async def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        drops = self._drops_privileges()
        node = self._node(inode)
        changes = Changes(
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            size_bytes=attr.st_size if fields.update_size else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        if changes == Changes() and drops:  # the kernel is about to write by itself
            changes = self._files.attrs.without_privileges(node)
        async with self._turns.names.of(ctx.uid):
            stat = await self._files.change(node, changes, _caller(ctx), is_open=fh is not None, drop_privileges=drops)
        return attributes_of(node, stat, 0.0, self._files.lookup.seconds(node))

    @replies
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        stats = self._files.attrs.file_system(self._nodes.root, _caller(ctx))
        data = StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(data, field, getattr(stats, field))
        data.f_namemax = 255
        return data

    @replies
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        return self._files.xattrs.get(self._node(inode), name, self._attempt())

    @replies
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        return self._files.xattrs.names(self._node(inode), _caller(ctx))

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        asked = Fallocation.of(name, value)
        if asked is not None:
            await self._fallocate(inode, asked, ctx)
        else:
            await self._setxattr(inode, name, value, ctx)

    @replies
    async def _fallocate(self, inode: int, asked: Fallocation, ctx: RequestContext) -> None:
        async with self._turns.data.of(ctx.uid):
            opened, size_bytes = self._opened(asked.handle), asked.length_bytes
            await self._files.read_write.allocate(opened, asked.mode, asked.offset, size_bytes, asked.most_bytes)

    @replies
    async def _setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        node, attempt = self._node(inode), self._attempt()
        self._files.guard.check_open(node, os.O_RDONLY, _caller(ctx))
        async with self._turns.names.of(ctx.uid):
            await self._room(node).with_room(partial(self._files.xattrs.set, node, name, value, attempt), len(value))

    @replies
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        node, attempt = self._node(inode), self._attempt()
        self._files.guard.check_open(node, os.O_RDONLY, _caller(ctx))
        async with self._turns.names.of(ctx.uid):
            await self._files.xattrs.remove(node, name, attempt)

    # --- files -------------------------------------------------------------------------------------------------------

    @replies
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        request = self._connection.request()
        node = self._node(inode)
        async with self._turns.names.of(ctx.uid):
            handle = await self._files.opening.open(node, flags, request, _caller(ctx))
        info = FileInfo(fh=handle.number, keep_cache=not node.cache_is_stale)
        if node.cache_is_stale:
            node.cache_is_stale = not self._invalidation.before_handle(handle.opened)
        self._answer(request, handle)
        return info

    @replies
    async def read(self, fh: int, off: int, size: int) -> bytes | bytearray | memoryview:  # type: ignore[override]
        opened = self._opened(fh)
        if opened.arrival is None:
            return await self._files.read_write.read(opened, off, size)
        async with self._turns.data.of(self._connection.user()):
            return await self._files.read_write.read(opened, off, size)

    @replies
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        drops = self._drops_privileges()
        opened = self._opened(fh)
        if opened.arrival is None:
            return await self._files.read_write.write(opened, off, buf, drop_privileges=drops)
        async with self._turns.data.of(self._connection.user()):
            return await self._files.read_write.write(opened, off, buf, drop_privileges=drops)

    @replies
    async def flush(self, fh: int) -> None:
        if not changes_nothing(fh):
            async with self._turns.commits.of(self._connection.user()):
                await self._files.committer.commit(self._opened(fh))

    @replies
    async def fsync(self, fh: int, datasync: bool) -> None:
        async with self._turns.commits.of(self._connection.user()):
            await self._files.committer.sync(self._opened(fh), data_only=datasync)

    @replies
    async def release(self, fh: int) -> None:
        request = self._connection.request()
        if not self._files.handles.is_counted(request):
            self._files.releasing.release(self._opened(fh), request)

    # --- directories -------------------------------------------------------------------------------------------------

    @replies
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        request = self._connection.request()
        node = self._node(inode)
        self._files.guard.check_list(node, _caller(ctx))
        self._files.listings.open(node)
        self._connection.answer(request, None, listing_flags(node, is_ours=self._directories.is_ours(node)))
        return node.id

    @replies
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        node = self._node(fh)
        async with self._turns.names.of(self._connection.user()):
            await self._files.listings.prepare(node, start_id)
        for name, inode, _, offset in dots(node, start_id):
            if not pyfuse3.readdir_reply(token, name, directory_entry(inode), offset):
                return
        for name, found, offset in self._files.listings.entries(node, start_id):
            if not pyfuse3.readdir_reply(
                token, name, attributes_of(found.node, found.stat, found.seconds, found.seconds), offset
            ):
                self._nodes.release(found.node)
                return
            self._invalidation.before_attributes(found.node)
            found.node.lookups += 1

    @replies
    async def releasedir(self, fh: int) -> None:
        self._files.listings.release(fh)

    @replies
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        async with self._turns.commits.of(self._connection.user()):
            await self._files.sync_directory(self._node(fh))

    # ------------------------------------------------------------------------------------------------------------------

    def _answer(self, request: int, handle: Handle) -> None:
        flags = OpenFlag.NONE if handle.sends_flush else OpenFlag.NO_FLUSH
        self._connection.answer(request, handle.opened.backing_id, flags)

    def _attempt(self) -> Attempt:
        """Return the running request, and whether an earlier daemon may have carried it out. Call before the first await."""
        request = self._connection.request()
        return Attempt(self._connection.number(request), self._connection.is_resent(request))

    def _drops_privileges(self) -> bool:
        """Say whether the request clears set-id bits. Call it before the first await."""
        return self._connection.drops_privileges() or not self._connection.tells_privileges

    def _room(self, node: Node) -> Room:
        """Return the room on the disk that a file, or what is in a directory, is on."""
        return self._rooms.on(self._directories.disk_number(node))

    def _opened(self, fh: int) -> OpenFile:
        return self._files.files.of_handle(fh)


def _caller(ctx: RequestContext) -> Caller:
    return Caller(ctx.uid, ctx.gid, ctx.pid)
