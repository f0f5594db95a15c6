"""Rebuild of a lost index: every file in the sending zones is checked once and gets an entry.

Marked files go to the writeback queue; all others are compared with the store (``Verifier``). Marked files of a store that
is not configured get a dirty entry, for a daemon that has the store again. A file that is opened earlier is checked by its
open, so nothing has to wait for the rebuild. It may be cut off at any point: the next run of the daemon begins it again. So
does a run after one in which a disk was not there, or could not read a directory.
"""

from __future__ import annotations

import os
from contextlib import suppress

import trio

from holdfast.errors import HoldfastError, IndexUnwritableError
from holdfast.fs.foundation import Foundation
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.store import is_unsent
from holdfast.system.file_id import file_stat


class IndexRebuild:
    """Fills a newly created index."""

    def __init__(self, base: Foundation, verifier: Verifier, queue: WritebackQueue) -> None:
        self._policy, self._events = base.policy, base.parts.events
        self._tree, self._index = base.parts.store.tree, base.parts.index
        self._has_all = not any(disk.is_absent for disk in base.parts.store.others.disks)
        self._unreadable: list[tuple[bytes, OSError]] = []
        """The directories that the walk has left out, each with the error."""
        self._verifier = verifier
        self._queue = queue

    async def run(self) -> None:
        """Check all files, unless this or an earlier run has done so since the index was created."""
        if not self._index.is_to_be_rebuilt():
            return
        paths = await trio.to_thread.run_sync(self._files)
        for path, problem in self._unreadable:
            self._events.emit("rebuild-skipped", path=os.fsdecode(path), problem=str(problem))
        for path in paths:
            try:
                await self._look_at(path)
            except (OSError, HoldfastError) as problem:
                self._events.emit("rebuild-skipped", path=os.fsdecode(path), problem=str(problem))
        if self._has_all and not self._unreadable:
            self._note_rebuilt()
        if paths:
            self._events.emit("index-rebuilt", files=len(paths))

    def _note_rebuilt(self) -> None:
        with suppress(IndexUnwritableError):  # then the next run examines them once more
            self._index.note_rebuilt()

    async def _look_at(self, path: bytes) -> None:
        fd = self._tree.open_file(path)
        try:
            stat = file_stat(fd)
            if is_unsent(fd):
                self._index.entries.mark_dirty(stat, path)
                self._queue.add(path)
            elif self._zone_sends(path) and self._index.entries.get(stat.st_ino) is None:
                await self._verifier.check_before_use(path, fd)
        finally:
            os.close(fd)

    def _files(self) -> list[bytes]:
        found = []
        for path, _ in self._tree.walk(b"", unreadable=lambda *found: self._unreadable.append(found)):
            name = self._policy.of_path(path)
            if name is None or name.sends:
                found.append(path)
        return found

    def _zone_sends(self, path: bytes) -> bool:
        name = self._policy.of_path(path)
        return name is not None and name.zone.sends
