"""Files of which the disk has refused bytes after their write had succeeded (``store.lost_bytes``).

Users' files are synced here, and whoever sends or hashes a file asks here once it is read. A file that has lost bytes stays
as it is, marked: memory may still have them. It can be read, but is not sent and gets no digest, and its close and its fsync
are EIO, until it is truncated to nothing.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial

import trio

from holdfast.errors import FileBusyError, LostBytesError
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.node import path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.store import check_nothing_lost, is_marked_lost, mark_lost, sync_bytes, unmark_lost
from holdfast.system.file_id import FileId, file_stat
from holdfast.telemetry import EventLog

_log = logging.getLogger("holdfast.fs")


class Losses:
    """Syncs files, and marks those that have lost bytes."""

    def __init__(self, hot: HotFiles, nodes: NodeTable, events: EventLog) -> None:
        self._hot, self._nodes, self._events = hot, nodes, events
        self.unmarked: set[FileId] = set()
        """The files whose mark the disk does not take, or has not taken yet."""

    def check(self, fd: int) -> None:
        """Raise ``LostBytesError`` if the file has lost bytes; then call ``note``. It waits for nothing; in any thread."""
        check_nothing_lost(fd)
        self._check_marked(fd)

    def _check_marked(self, fd: int) -> None:
        if self.unmarked and file_stat(fd).st_ino in self.unmarked:
            raise LostBytesError

    async def has_lost(self, fd: int) -> bool:
        """Say whether the file has lost bytes, and note that."""
        try:
            self.check(fd)
        except LostBytesError:
            await self.note(fd)
            return True
        return False

    async def sync(self, fd: int, *, data_only: bool = False) -> None:
        """fsync(2), or fdatasync(2), in a thread. Raises ``OSError``, and ``LostBytesError``, which is noted."""
        try:
            await trio.to_thread.run_sync(partial(sync_bytes, fd, data_only=data_only))
            self._check_marked(fd)
        except LostBytesError:
            await self.note(fd)
            raise

    async def note(self, fd: int) -> None:
        """Mark a file that has lost bytes, and tell of it: once."""
        inode = file_stat(fd).st_ino
        if inode in self.unmarked or is_marked_lost(fd):
            return
        self.unmarked.add(inode)
        node = self._nodes.of_backing(inode)
        path = os.fsdecode((path_of(node) if node is not None else None) or b"?")
        self._events.emit("bytes-lost", path=path)
        try:
            await self._hot.change(inode, partial(mark_lost, fd, self._hot.set_attribute))
        except (OSError, FileBusyError) as problem:
            _log.warning("%s has lost bytes, and can't be marked, so the next daemon does not know: %s", path, problem)
        else:
            self.unmarked.discard(inode)

    async def truncated(self, fd: int) -> None:
        """Forget what a file has lost that is empty now. Raises ``FileBusyError`` and ``OSError``."""
        with suppress(LostBytesError):
            self.check(fd)
            return
        inode = file_stat(fd).st_ino
        self.unmarked.discard(inode)
        await self._hot.change(inode, partial(self._unmark, fd))

    def _unmark(self, fd: int) -> None:
        if is_marked_lost(fd):
            unmark_lost(fd, self._hot.remove_attribute)
