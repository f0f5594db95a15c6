"""Temporary files that killed writers have left in the zones of stores: removed at the start, and once a day.

An engine writes or links a file under a temporary name of its making (``.NAME.<uuid>.tmp``), and renames it. If it is killed
in between, the file stays: no store has it, so no sweep lists it, no eviction takes it, and no later attempt has its name.
It is abandoned when nobody has it open and neither its bytes nor its names have changed for the grace age. Other temporary
names (``a.tmp``) are kept, since people choose such names too. Hadoop's checksum beside it goes with it.

A crash leaves what was not reached to the next daemon.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import trio

from holdfast.checkpoints.formats import FORMATS
from holdfast.errors import FileBusyError
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.store import Tree
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.telemetry import EventLog
from holdfast.transfer import CachedCopies

_EVERY_SECONDS = 86400.0
_LEAST_AGE_SECONDS = 3600.0
"""The least age, however small the grace age is: here no user looks at a plan first."""
_NS = 10**9
_log = logging.getLogger("holdfast.maintenance")


@dataclass(frozen=True, slots=True)
class AbandonedTemporaries:
    """Removes such files from ``zones``, the top names of stores' zones. ``now_ns`` is the time of day."""

    tree: Tree
    copies: CachedCopies
    hot: HotFiles
    events: EventLog
    zones: tuple[bytes, ...]
    grace_seconds: float
    now_ns: Callable[[], int] = time.time_ns

    async def run(self) -> None:
        """Remove what is abandoned, again and again, until cancelled."""
        while True:
            for zone in self.zones:
                with suppress(OSError):  # of the disk, which others tell of
                    await self.remove(zone)
            await trio.sleep(_EVERY_SECONDS)

    async def remove(self, zone: bytes) -> int:
        """Remove what is abandoned in a zone; return how many files. Raises ``OSError``."""
        before_ns = self.now_ns() - int(max(self.grace_seconds, _LEAST_AGE_SECONDS) * _NS)
        removed = 0
        for path, inode in await trio.to_thread.run_sync(lambda: list(self._abandoned(zone, before_ns))):
            with suppress(FileBusyError):
                await self.hot.settle(inode)
                removed += self._remove(path, inode, before_ns)
        if removed:
            self.events.emit("temporaries-removed", zone=os.fsdecode(zone), files=removed)
            _log.info("removed %d temporary files of killed writers from %s", removed, os.fsdecode(zone))
        return removed

    def _remove(self, path: bytes, inode: FileId, before_ns: int) -> bool:
        """Remove a file in one step with a last look at it; say whether it was removed."""
        try:
            stat = self.tree.stat(path)
        except FileNotFoundError:
            return False
        is_abandoned = stat.st_ino == inode and _touched_ns(stat) < before_ns and not self.copies.is_open(inode)
        if not is_abandoned or not self.copies.drop(path, inode):
            return False
        self.copies.drop_sidecar(path)
        return True

    def _abandoned(self, zone: bytes, before_ns: int) -> Iterator[tuple[bytes, FileId]]:
        """Yield path and id of each file below ``zone`` that seems to be abandoned. Waits for the disk."""
        try:
            top_fd = self.tree.open_directory(zone)
        except FileNotFoundError:
            return
        try:
            for trail, fd, entries in self.tree.descend(top_fd):
                for entry in entries:
                    if not entry.is_directory and FORMATS.temporary_target(entry.name) is not None:
                        with suppress(FileNotFoundError):
                            stat = file_stat(entry.name, dir_fd=fd, follow_symlinks=False)
                            if _touched_ns(stat) < before_ns:
                                yield b"/".join([zone, *trail, entry.name]), stat.st_ino
        finally:
            os.close(top_fd)


def _touched_ns(stat: FileStat) -> int:
    """Return when the bytes, the attributes or the names of a file have last changed."""
    return max(stat.st_mtime_ns, stat.st_ctime_ns)
