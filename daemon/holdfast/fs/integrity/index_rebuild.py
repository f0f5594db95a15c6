"""After a lost index: every file in the sending zones is looked at once, so that the index knows it again.

Marked files go to the backlog, the others are compared with the store (``Verifier``). A file that is opened before its turn
is looked at then; so nothing has to wait for this, and it may be cut off at any point: what has no entry is found again by
the next rebuild, or by the next open.
"""

from __future__ import annotations

import os

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.inodes.core import LOCAL_KINDS, Core
from holdfast.fs.integrity.verifier import Verifier
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.store import is_unsent


class IndexRebuild:
    """Fills a renewed index."""

    def __init__(self, core: Core, verifier: Verifier, backlog: WritebackQueue) -> None:
        self._core = core
        self._verifier = verifier
        self._backlog = backlog

    async def run(self) -> None:
        """Look at all files if the index is in its first run; else return at once."""
        core = self._core
        if core.index.run > 1:
            return
        paths = await trio.to_thread.run_sync(self._files)
        for path in paths:
            try:
                await self._look_at(path)
            except (OSError, HoldfastError) as problem:
                core.events.emit("rebuild-skipped", path=os.fsdecode(path), problem=str(problem))
        if paths:
            core.events.emit("index-rebuilt", files=len(paths))

    async def _look_at(self, path: bytes) -> None:
        core = self._core
        fd = core.store.tree.open_file(path)
        try:
            stat = os.fstat(fd)
            if is_unsent(fd):
                core.mark_dirty(stat, path)
                self._backlog.add(path)
            elif core.index.entries.get(stat.st_ino) is None:
                await self._verifier.check_before_use(path, fd)
        finally:
            os.close(fd)

    def _files(self) -> list[bytes]:
        core = self._core
        found = []
        for top in core.zones.top_names:
            for path, _ in core.store.tree.walk(top):
                parent, _, name = path.rpartition(b"/")
                place = core.zones.place_of(parent)
                if place is not None and place.zone.sends and core.kind_of(place, name) not in LOCAL_KINDS:
                    found.append(path)
        return found
