"""Reads and writes of open files that the kernel sends to the daemon.

Data in the page cache is read on the event loop, because a hop to a thread costs more than the read. The kernel returns
EAGAIN if it would have to wait for the disk; a thread reads then. Writes of up to 64 KiB run on the loop too, since they go
to the page cache. Larger ones run in a thread, so as not to hold up other requests.
"""

from __future__ import annotations

import errno
import os
from functools import partial

import trio

from holdfast.errors import CorruptEntryError
from holdfast.fs.file_io.arriving import LocalFiles
from holdfast.fs.file_io.open_files import HandleTable, OpenFiles
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.hot_files import LONG_PATIENCE_SECONDS
from holdfast.fs.inodes.open_file import OpenFile

_INLINE_WRITE_BYTES = 64 * 1024
_DISK_THREADS = 8
_BLOCK_BYTES = 512  # of stat(2)


class ReadWrite:
    """Reads and writes. On a full disk, clean files are evicted and the write is tried again."""

    def __init__(self, base: Foundation, files: OpenFiles, local_files: LocalFiles, handles: HandleTable) -> None:
        self._directories, self._admission, self._hot = base.directories, base.admission, base.hot
        self._rooms, self._ordinary_user = base.rooms, base.ordinary_user
        self._files = files
        self._arriving, self._check = local_files.arriving, local_files.check
        self._handles = handles
        self._limiter = trio.CapacityLimiter(_DISK_THREADS)

    async def read(self, opened: OpenFile, offset: int, size_bytes: int) -> bytes | bytearray | memoryview:
        """Return up to ``size_bytes`` from ``offset``; fewer only at the end of the file.

        A copy that the disk can't read is dropped at once. Raises ``CorruptEntryError`` and ``OSError`` (EIO).
        """
        if opened.corrupt:
            raise CorruptEntryError("the file was found to be corrupt while it was open; open it again")
        opened.check_reachable()
        if opened.arrival is not None:
            await self._arriving.wait_for(opened, offset, offset + size_bytes)
            self._handles.note_served(opened)
        try:
            return await self._read(opened, offset, size_bytes)
        except OSError as problem:
            if problem.errno == errno.EIO:
                self._check.drop_unreadable(opened, problem)
            raise

    async def _read(self, opened: OpenFile, offset: int, size_bytes: int) -> bytes | bytearray | memoryview:
        buffer = bytearray(size_bytes)
        try:
            count = os.preadv(opened.fd, [buffer], offset, os.RWF_NOWAIT)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
            count = 0
        if count == size_bytes:
            return buffer
        if offset + count >= os.fstat(opened.fd).st_size:
            return memoryview(buffer)[:count]
        return await trio.to_thread.run_sync(os.pread, opened.fd, size_bytes, offset, limiter=self._limiter)

    async def write(self, opened: OpenFile, offset: int, data: bytes, *, drop_privileges: bool = True) -> int:
        """Write all of ``data`` at ``offset``; return the number of bytes. Raises ``QuotaExceededError``."""
        self._admission.check_may_grow(opened.node)
        await self._arriving.wait_whole(opened)
        if self._hot.is_hot(opened):
            await self._hot.settle(opened.inode)
        self._files.before_change(opened, drop_privileges=drop_privileges)
        try:
            room = self._rooms.of(opened.inode)
            return await room.with_room(partial(self._write, opened.fd, data, offset), len(data))
        finally:
            self._files.mark_changed(opened)

    async def allocate(self, opened: OpenFile, mode: int, offset: int, length_bytes: int, most_bytes: int) -> None:
        """fallocate(2), which takes ``most_bytes``, and as long as the file has pieces.

        What is more than the disk has is not tried: file systems keep what they had allocated before they failed. What takes
        nothing, as a hole that is punched, is allowed above a limit too.

        Raises ``QuotaExceededError`` and ``FileBusyError``.
        """
        if most_bytes:
            self._admission.check_may_grow(opened.node)
        await self._arriving.wait_whole(opened)
        await self._files.settle_privileges(opened)
        self._files.before_change(opened)
        most_bytes = max(0, most_bytes - os.fstat(opened.fd).st_blocks * _BLOCK_BYTES)
        room = self._rooms.of(opened.inode)
        await room.ensure_room(most_bytes)
        allocation = partial(
            self._hot.call, opened, "fallocate", [], mode, offset, length_bytes, patience=LONG_PATIENCE_SECONDS
        )
        try:
            await room.with_room(allocation, most_bytes)
        finally:
            self._files.mark_changed(opened)

    async def truncate(self, opened: OpenFile, size_bytes: int, *, drop_privileges: bool = True) -> None:
        """ftruncate(2)."""
        await self._arriving.wait_whole(opened)
        await self._files.truncate(opened, size_bytes, drop_privileges=drop_privileges)

    async def _write(self, fd: int, data: bytes, offset: int) -> int:
        if len(data) <= _INLINE_WRITE_BYTES:
            return self._write_as_user(fd, data, offset)
        return await trio.to_thread.run_sync(self._write_as_user, fd, data, offset, limiter=self._limiter)

    def _write_as_user(self, fd: int, data: bytes, offset: int) -> int:
        """Write ``data``, and take nothing of what the disk keeps for root."""
        with self._ordinary_user.writes():
            return _write_all(fd, data, offset)


def _write_all(fd: int, data: bytes, offset: int) -> int:
    """Write ``data``, also if the disk takes it in parts: one that gets full takes a part first."""
    done = os.pwrite(fd, data, offset)
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], offset + done)
    return done
