"""Immediate replies, past pyfuse3: requests that neither wait nor ask a store are answered as soon as they are read.

A stat takes 70 µs, of which the file system's part is 5; the rest is wake-ups, libfuse, pyfuse3 and the event loop. So
the C module calls this module first (``kernel.Connection.answer_directly``). A request that has to wait is suspended, and a
task goes on with it (``LaterReplies``); threads answer syncs. All else is left to pyfuse3 (``Operations``): other kinds of
requests, those that an earlier daemon may have carried out, and those that found the disk full. The logic is the file
system's; this module only converts numbers and bytes. It runs for nearly every request, so it keeps what it needs at hand.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from holdfast.capacity import Room
from holdfast.fs.file_io.commit import closes_inherited
from holdfast.fs.file_io.open import executes
from holdfast.fs.file_io.open_files import Handle, changes_nothing
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.fuse import wire_format
from holdfast.fs.fuse.error_replies import errno_of
from holdfast.fs.fuse.later_replies import LaterReplies, Syncs, Turns
from holdfast.fs.fuse.readdir_replies import ReaddirReplies
from holdfast.fs.fuse.request_observer import OperationTimes, Request, name_of
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.lookup import Found
from holdfast.kernel import Connection, Opcode, OpenFlag
from holdfast.store import NO_ROOM
from holdfast.system.waits import Suspended, resumed, resumed_once, step

Answer = bytes | int | None
_DATA_ONLY = 1  # FUSE_FSYNC_FDATASYNC
_OPEN_FLAGS = {
    (False, False): int(OpenFlag.KEEP_CACHE | OpenFlag.NO_FLUSH),
    (False, True): int(OpenFlag.KEEP_CACHE),
    (True, False): int(OpenFlag.PASSTHROUGH | OpenFlag.NO_FLUSH),
    (True, True): int(OpenFlag.PASSTHROUGH),
}
"""The open flags of a file, by whether it is served by passthrough and whether the kernel is to send FLUSH."""
_MOST_CALLERS = 64
"""The number of callers that are kept at hand: most requests come from a few threads, and from the kernel itself."""
_CHANGES_NAMES = {Opcode.LINK, Opcode.RENAME, Opcode.RENAME2}
"""The requests that can't be tried again once the disk turns out to be full. A rename or link never crosses disks, so the
disk of the directory that the request is about must have room."""
_Operation = Callable[[Node, bytes, Caller], Coroutine[Any, Any, Answer]]
_Method = Callable[[int, bytes, Caller], Answer]


class ImmediateReplies:
    """Answers requests by opcode. ``answer`` is the function for ``Connection.answer_directly``."""

    def __init__(
        self,
        base: Foundation,
        files: FileSystem,
        connection: Connection,
        turns: Turns,
        times: OperationTimes,
        later: LaterReplies,
    ) -> None:
        self._files = files
        self._turns = turns
        self._later = later
        self._nodes = base.nodes
        self._directories = base.directories
        self._invalidation = base.invalidation
        self._rooms = base.rooms
        self._losing = base.unlinks.losing.candidates
        self._counters = base.parts.counters
        self._request = 0
        self._callers: dict[tuple[int, int, int], Caller] = {}
        self._known = base.nodes.known
        self._zone = times.zone
        self._times = times
        self._reply, self._losses = connection.reply, base.losses
        self._syncs = Syncs(connection.reply, partial(times.hand_over, Opcode.FSYNC), self._lost_in_thread)
        self._listings = ReaddirReplies(base, files, connection, turns.names, later)
        self._operations: dict[int, _Operation] = {
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.SETATTR: self._setattr,
            Opcode.STATFS: self._statfs,
            Opcode.GETXATTR: self._getxattr,
            Opcode.OPEN: self._open,
            Opcode.CREATE: self._create,
            Opcode.MKDIR: self._mkdir,
            Opcode.UNLINK: self._unlink,
            Opcode.LINK: self._link,
            Opcode.RENAME: self._rename,
            Opcode.RENAME2: self._rename2,
            Opcode.OPENDIR: self._opendir,
            Opcode.FLUSH: self._flush,
        }
        self._others: dict[int, _Method] = {
            Opcode.FORGET: self._forget,
            Opcode.BATCH_FORGET: self._batch_forget,
            Opcode.FSYNC: self._fsync,
            Opcode.RELEASE: self._release,
            Opcode.READDIR: self._readdir,
            Opcode.READDIRPLUS: self._readdirplus,
            Opcode.RELEASEDIR: self._releasedir,
        }

    @property
    def opcodes(self) -> list[Opcode]:
        """The opcodes that may be answered here."""
        return [Opcode(opcode) for opcode in (*self._operations, *self._others)]

    def answer(self, opcode: int, unique: int, node_id: int, uid: int, gid: int, pid: int, body: bytes) -> Answer:
        """Return the body of the reply, an errno (0: success), True if it comes later, or None if pyfuse3 is to answer."""
        self._request = unique
        caller = self._callers.get((uid, gid, pid))
        if caller is None:
            caller = self._new_caller(uid, gid, pid)
        node = self._known(node_id)
        self._zone[0] = node.zone if node is not None else 0
        try:
            operation = self._operations.get(opcode)
            if operation is None:
                return self._others[opcode](node_id, body, caller)
            if node is None or not node.lookups:  # an earlier daemon gave it to the kernel
                node = self._nodes.get(node_id)
            return step(operation(node, body, caller))
        except Suspended as suspended:
            request = Request(Opcode(opcode), unique, node_id, body, caller)
            return self._later.begin(request, self._rest(request, suspended.operation))
        except OSError as problem:
            if problem.errno in NO_ROOM and opcode in self._operations:
                return None  # pyfuse3's handler makes room, and tries again
            return errno_of(problem, name_of(Opcode(opcode)), self._counters)
        except Exception as problem:  # noqa: BLE001 the boundary is where all else ends
            return errno_of(problem, name_of(Opcode(opcode)), self._counters)

    async def _rest(self, request: Request, operation: Coroutine[Any, Any, Answer]) -> Answer:
        """Go on with the operation of a request that had to wait, when its user has a turn for it."""
        turns = self._turns.commits if request.opcode is Opcode.FLUSH else self._turns.names
        async with turns.of(request.caller.uid):
            if request.opcode is Opcode.CREATE:
                create = resumed_once(operation, partial(self._create_anew, request))
                return await self._room(request.node_id).with_room(create)
            if request.opcode in _CHANGES_NAMES:
                await self._room(request.node_id).keep_spare()
            return await resumed(operation)

    async def _create_anew(self, request: Request) -> Answer:
        self._request = request.unique
        return await self._create(self._nodes.get(request.node_id), request.body, request.caller)

    def _room(self, directory_id: int) -> Room:
        is_spread = self._directories.is_spread
        return self._rooms.on(self._directories.disk_number(self._nodes.get(directory_id)) if is_spread else 0)

    def _new_caller(self, uid: int, gid: int, pid: int) -> Caller:
        if len(self._callers) >= _MOST_CALLERS:
            self._callers.clear()
        caller = self._callers[uid, gid, pid] = Caller(uid, gid, pid)
        return caller

    # --- names -------------------------------------------------------------------------------------------------------

    async def _lookup(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        name = body[:-1]
        if name in (b".", b".."):
            return None
        found = await self._files.lookup.find(directory, name, caller)
        if isinstance(found, Found):
            if found.node.backing in self._losing:
                self._invalidation.before_attributes(found.node)
            return _entry(found)
        return wire_format.no_entry(found) if found else errno.ENOENT

    def _forget(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        self._files.forget(node_id, wire_format.NODE.unpack_from(body)[0])
        return 0

    def _batch_forget(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        for forgotten, lookups in wire_format.forgotten(body):
            self._files.forget(forgotten, lookups)
        return 0

    async def _create(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        flags, mode, _, _ = wire_format.CREATE.unpack_from(body)
        name = body[wire_format.CREATE.size : -1]
        found, handle = await self._files.creation.file(directory, name, mode, flags, self._request, caller)
        return _entry(found) + _opened(handle)

    async def _mkdir(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        mode = wire_format.MKDIR.unpack_from(body)[0] & 0o7777
        name = body[wire_format.MKDIR.size : -1]
        await self._files.making.before_directory(directory, name)
        node, stat = self._files.making.directory(directory, name, mode, caller)
        return _entry(self._files.lookup.new(node, stat))

    async def _unlink(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        await self._files.unlinking.unlink(directory, body[:-1])
        return 0

    async def _link(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        node = self._nodes.get(wire_format.NODE.unpack_from(body)[0])
        stat = await self._files.linking.link(node, directory, body[wire_format.NODE.size : -1], caller)
        return _entry(self._files.lookup.new(node, stat))

    async def _rename(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        (target_id,) = wire_format.NODE.unpack_from(body)
        return await self._move(directory, target_id, 0, body[wire_format.NODE.size : -1], caller)

    async def _rename2(self, directory: Node, body: bytes, caller: Caller) -> Answer:
        target_id, flags = wire_format.RENAME2.unpack_from(body)
        return await self._move(directory, target_id, flags, body[wire_format.RENAME2.size : -1], caller)

    async def _move(self, source: Node, target_id: int, flags: int, names: bytes, caller: Caller) -> Answer:
        old, _, new = names.partition(b"\0")
        await self._files.renaming.rename(source, old, self._nodes.get(target_id), new, flags, caller)
        return 0

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def _getattr(self, node: Node, body: bytes, caller: Caller) -> Answer:
        if self._files.attrs.may_be_old(node):
            await self._files.attrs.learn(node)
        if node.backing in self._losing:
            self._invalidation.before_attributes(node)
        return wire_format.attributes(node.id, self._files.attrs.get(node), self._directories.seconds(node))

    async def _setattr(self, node: Node, body: bytes, caller: Caller) -> Answer:
        changes = wire_format.changes(body)
        if changes is None:
            return None
        stat = await self._files.change(node, changes, caller)
        return wire_format.attributes(node.id, stat, self._files.lookup.seconds(node))

    async def _statfs(self, node: Node, body: bytes, caller: Caller) -> Answer:
        return wire_format.file_system(self._files.attrs.file_system(node, caller))

    async def _getxattr(self, node: Node, body: bytes, caller: Caller) -> Answer:
        size_bytes = wire_format.GETXATTR.unpack_from(body)[0]
        value = self._files.xattrs.get(node, body[wire_format.GETXATTR.size : -1])
        if size_bytes == 0:
            return wire_format.GETXATTR.pack(len(value))
        return value if len(value) <= size_bytes else errno.ERANGE

    async def _open(self, node: Node, body: bytes, caller: Caller) -> Answer:
        flags = wire_format.OPEN.unpack_from(body)[0]
        handle = await self._files.opening.open(node, flags, self._request, caller)
        if not node.cache_is_stale:
            return _opened(handle)
        node.cache_is_stale = not self._invalidation.before_handle(handle.opened)
        return _opened(handle, drop=OpenFlag.KEEP_CACHE)

    async def _flush(self, node: Node, body: bytes, caller: Caller) -> Answer:
        handle = wire_format.NODE.unpack_from(body)[0]
        opened = self._files.files.of_handle(handle)
        if not changes_nothing(handle) and not closes_inherited(opened, caller.pid):
            await self._files.committer.commit(opened)
        return 0

    def _fsync(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        """Let a thread sync a file that is not sent. The thread replies without a turn of the event loop."""
        handle, flags = wire_format.FSYNC.unpack_from(body)
        opened = self._files.files.of_handle(handle)
        if opened.arrival is not None or self._files.files.sends(opened) or opened.inode in self._losses.unmarked:
            return None
        self._times.take_over()  # of earlier ones
        zone = opened.node.zone
        return self._syncs.begin(self._request, opened.fd, zone, data_only=bool(flags & _DATA_ONLY)) or None

    def _lost_in_thread(self, request: int, fd: int) -> None:
        """Reply to the sync of a file of which the disk has refused bytes, once that is noted. For any thread."""
        self._files.background.start_from_thread(self._note_loss, request, fd)

    async def _note_loss(self, request: int, fd: int) -> None:
        try:
            await self._losses.note(fd)
        finally:
            self._reply(request, errno.EIO)

    def _release(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        handle, flags = wire_format.RELEASE.unpack_from(body)
        opened = self._files.files.of_handle(handle)
        self._files.releasing.release(opened, self._request, executes=executes(flags))
        return 0

    # --- directories -------------------------------------------------------------------------------------------------

    async def _opendir(self, node: Node, body: bytes, caller: Caller) -> Answer:
        if caller.uid:
            self._files.guard.check_list(node, caller)
        return self._listings.open(node)

    def _readdir(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        handle, offset, size_bytes = wire_format.READ.unpack_from(body)
        request = Request(Opcode.READDIR, self._request, node_id, body, caller)
        return self._listings.read(request, self._nodes.get(handle), offset, size_bytes)

    def _readdirplus(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        handle, offset, size_bytes = wire_format.READ.unpack_from(body)
        request = Request(Opcode.READDIRPLUS, self._request, node_id, body, caller)
        return self._listings.read_with_attributes(request, self._nodes.get(handle), offset, size_bytes)

    def _releasedir(self, node_id: int, body: bytes, caller: Caller) -> Answer:
        self._files.listings.release(wire_format.NODE.unpack_from(body)[0])
        return 0


def _opened(handle: Handle, drop: int = 0) -> bytes:
    """Return the body of the reply to OPEN, or the second half of that to CREATE, without the open flags ``drop``."""
    opened = handle.opened
    flags = _OPEN_FLAGS[opened.backing_id is not None, handle.sends_flush] & ~drop
    return wire_format.opened(handle.number, flags, opened.backing_id or 0)


def _entry(found: Found) -> bytes:
    """Return the reply for a node, which gives the kernel one more reference."""
    node, stat, seconds = found
    node.lookups += 1
    return wire_format.entry(node.id, stat, seconds)
