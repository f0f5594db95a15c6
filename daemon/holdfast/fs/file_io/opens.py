"""Opening and closing: where a miss is fetched, a file is verified before it is served, and a close becomes a commit.

What may wait (a fetch, hashing, a PUT) is awaited under the node's own lock; everything between two awaits is atomic. A
node is open from the moment its backing descriptor exists until the kernel has released its last handle.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from holdfast.fs.file_io.cache_miss import TRIES, CacheMiss, restless
from holdfast.fs.file_io.descriptors import check_writable, is_dirty, open_local, upgrade
from holdfast.fs.file_io.handle_table import HandleTable
from holdfast.fs.file_io.passthrough import BackingFiles, NoBackingFiles, is_long_sidecar
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.file_io.text_busy import is_executed
from holdfast.fs.inodes.attributes import NamelessStat, Stat
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node, path_of
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.remote_view.revalidation import Revalidation
from holdfast.zones import ZonePath


class OpenFiles:
    """All open nodes. ``closed`` hears of each node whose last handle went."""

    def __init__(
        self,
        core: Core,
        beliefs: Revalidation,
        verifier: Verifier,
        prefetcher: Prefetcher,
        unseen: PassthroughWrites,
        handles: HandleTable,
    ) -> None:
        self._core = core
        self._handles = handles
        self._missing = CacheMiss(core, beliefs)
        self._verifier = verifier
        self._prefetcher = prefetcher
        self._unseen = unseen
        self.backing: BackingFiles = NoBackingFiles()
        self.closed: Callable[[Node], None] = _nobody_waits

    async def open(self, node: Node, flags: int) -> OpenFile:
        """open(2) of an existing node; counts one handle.

        A file that is not here is fetched: a small one whole, a large one while it is read. Raises ``WriteOnceError``
        for a write to a committed write-once name, ``CorruptEntryError`` when there is no intact copy, ``RemoteError``.
        """
        try:
            return self.open_nowait(node, flags)
        except trio.WouldBlock:
            pass
        writable = _writes(flags)
        async with self._core.lock(node):
            opened = await self._open_slowly(node, writable, truncate=bool(flags & os.O_TRUNC))
        opened.handles += 1
        try:
            if flags & os.O_TRUNC:
                await self._whole(opened)
            return self._complete(opened, flags)
        except BaseException:
            self._uncount(opened)
            raise

    def open_nowait(self, node: Node, flags: int) -> OpenFile:
        """``open`` of a file that is here, and known to be intact. Raises ``trio.WouldBlock`` for all others."""
        writable = _writes(flags)
        if writable:
            check_writable(self._core, node)
        opened = node.opened
        if opened is None:
            opened = self._open_nowait(node, writable, truncate=bool(flags & os.O_TRUNC))
        elif (writable and not opened.writable) or (opened.arrival is not None and (flags & os.O_TRUNC or opened.failed)):
            raise trio.WouldBlock
        self._count_open(node)
        opened.handles += 1
        try:
            return self._complete(opened, flags)
        except BaseException:
            self._uncount(opened)
            raise

    def handed_out(self, opened: OpenFile, *, writable: bool) -> None:
        """The kernel gets a handle. The first one decides who serves the data of all: the kernel by itself, if it can.

        After an error it gets none, and ``opened`` still counts it.
        """
        if not opened.has_kind:
            opened.has_kind = True
            whole = opened.arrival is None or opened.arrival.finished
            if opened.writable and whole and (writable or not is_long_sidecar(self._core, opened)):
                opened.backing_id = self.backing.register(opened.node.id, opened.fd)
        if writable and opened.backing_id is not None:
            self._unseen.expect(opened)

    def opened(self, node_id: int) -> OpenFile:
        """Return the open file that the kernel means by the handle ``node_id``; it may have forgotten the node."""
        node = self._core.nodes.known(node_id)
        if node is None or node.opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return node.opened

    def release(self, opened: OpenFile) -> None:
        """The kernel drops a handle. With the last one the file is closed."""
        self._uncount(opened)

    async def truncate(self, opened: OpenFile, size_bytes: int, *, drop_privileges: bool = True) -> None:
        """ftruncate(2)."""
        await self._whole(opened)
        self._truncate(opened, size_bytes, drop_privileges=drop_privileges)

    def about_to_write(self, opened: OpenFile, *, drop_privileges: bool = True) -> None:
        """Note, before the first change since the last send, that the bytes change."""
        if opened.privileged and drop_privileges:
            opened.drop_privileges()
        if opened.unsent:
            return
        opened.unsent = True
        self._core.note_change(opened.node, opened.fd)

    async def make_local(self, node: Node) -> None:
        """Return when the node's bytes are whole, verified and in the tree."""
        if node.is_directory:
            return
        async with self._core.lock(node):
            was_corrupt = node.backing != 0 and node.opened is None and not await self._closed_is_intact(node)
            if node.backing == 0:
                await self._missing.fetch_whole(node, was_corrupt)
            elif node.opened is not None and node.opened.arrival is not None:
                await node.opened.arrival.wait_whole()

    def is_local(self, node: Node) -> bool:
        """Say whether ``make_local`` has nothing to do, as far as can be told without reading the file."""
        if self._core.lock(node).locked() or node.backing == 0:
            return False
        if node.opened is not None:
            return node.opened.arrival is None
        return not self._core.has_digest(node)

    @contextmanager
    def descriptor_of(self, node: Node) -> Iterator[int]:
        """Give a descriptor of a node that is local, open or not, and keep the node from being evicted meanwhile."""
        opened = node.opened
        if opened is None:
            opened = node.opened = open_local(self._core, node, writable=False)
        opened.handles += 1
        try:
            yield opened.fd
        finally:
            self._uncount(opened)

    def stat(self, node: Node) -> Stat | None:
        """Return the attributes of an open node; None when it isn't open."""
        if node.opened is None:
            return None
        node.opened.check_reachable()
        stat = os.fstat(node.opened.fd)
        arrival = node.opened.arrival
        if arrival is not None and not arrival.finished and not arrival.failed:
            return None
        return stat if node.is_named else NamelessStat(stat)

    def digest_later(self, place: ZonePath, node: Node) -> None:
        """A file got its place in a zone that keeps digests and sends nothing: hash it when there is time."""
        if place.zone.digests and not place.zone.sends and node.backing:
            path = path_of(node)
            if path is not None:
                self._verifier.digest_soon(path)

    # --- opening ---------------------------------------------------------------------------------------------------

    def _complete(self, opened: OpenFile, flags: int) -> OpenFile:
        """Do what is left to do for an open that has been counted."""
        writable = _writes(flags)
        if writable and not opened.unsent:
            opened.unsent = is_dirty(self._core, opened.node)  # an earlier attempt to send it failed
        if flags & os.O_TRUNC:
            names = ((self._core.directories.place(parent), name) for parent, name in opened.node.names())
            if flags & os.O_ACCMODE == os.O_RDONLY and is_executed(place.child_path(name) for place, name in names):
                raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))
            self._truncate(opened, 0)
        self.handed_out(opened, writable=writable)
        return opened

    def _open_nowait(self, node: Node, writable: bool, *, truncate: bool) -> OpenFile:
        if node.backing == 0 or self._core.lock(node).locked():
            raise trio.WouldBlock
        opened = open_local(self._core, node, writable)
        path = path_of(node)
        if (
            not truncate
            and path is not None
            and self._core.has_digest(node)
            and not self._verifier.is_checked(path, opened.fd)
        ):
            opened.close()
            raise trio.WouldBlock
        node.opened = opened
        self._prefetcher.opened(node, opened.fd)
        return opened

    async def _whole(self, opened: OpenFile) -> None:
        if opened.arrival is not None and not opened.arrival.finished:
            await opened.arrival.wait_whole()

    def _truncate(self, opened: OpenFile, size_bytes: int, *, drop_privileges: bool = True) -> None:
        self.about_to_write(opened, drop_privileges=drop_privileges)
        os.ftruncate(opened.fd, size_bytes)

    async def _open_slowly(self, node: Node, writable: bool, *, truncate: bool) -> OpenFile:
        if node.opened is not None:
            return await self._open_more(node.opened, writable)
        was_corrupt = False
        for _ in range(TRIES):
            if node.backing == 0 and not await self._missing.open(node, truncate, was_corrupt):
                continue
            if node.opened is None:
                opened = open_local(self._core, node, writable)
                try:
                    intact = await self._intact(node, opened, truncate)
                except BaseException:
                    opened.close()
                    raise
                if not intact or node.opened is not None:
                    opened.close()
                    was_corrupt = not intact
                    continue
                node.opened = opened
                self._count_open(node)
            if node.opened.arrival is None:
                self._prefetcher.opened(node, node.opened.fd)
            if writable and not node.opened.writable:
                upgrade(node.opened)  # somebody else opened it meanwhile
            return node.opened
        raise restless(node)

    async def _open_more(self, opened: OpenFile, writable: bool) -> OpenFile:
        opened.handles += 1  # its last handle may go meanwhile, and its descriptor must not
        try:
            if opened.failed:
                await self._missing.fetch_again(opened)
            if writable and not opened.writable:
                upgrade(opened)
        except BaseException:
            self._uncount(opened)
            raise
        opened.handles -= 1  # the caller counts its own at once
        self._count_open(opened.node)
        return opened

    async def _closed_is_intact(self, node: Node) -> bool:
        if not self._core.has_digest(node) or self._is_special(node):
            return True
        try:
            opened = open_local(self._core, node, writable=False)
        except PermissionError:  # its owner may change what this user can't read
            return True
        try:
            return await self._intact(node, opened, truncate=False)
        finally:
            opened.close()

    def _is_special(self, node: Node) -> bool:
        """Say whether the node is a symbolic link, a FIFO, a socket or a device, whose bytes nobody reads here."""
        stat = self._core.local_stat(node.parent, node.name) if node.parent is not None else None
        return stat is not None and not stat_module.S_ISREG(stat.st_mode)

    async def _intact(self, node: Node, opened: OpenFile, truncate: bool) -> bool:
        """Say whether the file may be served; one that may not is in quarantine, and the node without a file."""
        if truncate or not self._core.has_digest(node):
            return True
        path = path_of(node)
        return path is None or await self._verifier.check_before_use(path, opened.fd)

    def _count_open(self, node: Node) -> None:
        if node.backing and self._core.has_digest(node):
            self._core.counters.hits += 1
            self._core.index.entries.used(node.backing, self._core.now_ns())

    def _uncount(self, opened: OpenFile) -> None:
        opened.handles -= 1
        node = opened.node
        if opened.handles > 0 or node.opened is not opened:
            return
        inode = node.backing if node.is_named else os.fstat(opened.fd).st_ino
        self._unseen.settle(opened)
        if opened.backing_id is not None:
            self.backing.unregister(node.id, opened.backing_id)
        self._handles.closed(opened)
        opened.close()
        node.opened = None
        self.closed(node)
        if not node.is_named:
            self._core.store.orphanage.release(inode)
            self._core.nodes.unbind(node)
        self._core.nodes.release(node)


def _writes(flags: int) -> bool:
    return flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)


def _nobody_waits(node: Node) -> None:
    del node
