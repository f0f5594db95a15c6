"""The directories of partitions on a disk that has failed leave the tree: their copies are fetched again, to other disks.

That the disk has failed is noted first, so that no later daemon takes up what is there, which others may have deleted in
their stores meanwhile. Then the placeholders go, with the names below, then what the index knows of the files. Directories
to which others had more or fewer rights than by default are made anew at once, so that these go on. A crash in
between leaves placeholders, which the next start removes, or entries, which its daemon forgets here: that these may be left
is noted until it has done so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import NamedTuple

import trio

from holdfast.errors import HoldfastError
from holdfast.fs.foundation import Foundation
from holdfast.index import Entry
from holdfast.store import OtherDisk, has_own_rights, keeping_mtime, make_like
from holdfast.system.file_id import FileId, file_stat
from holdfast.telemetry.slices import Slices

_IN_ONE_STEP = 100
"""The number of directories that leave with one look at all nodes."""
_log = logging.getLogger("holdfast.store")


class _WithRights(NamedTuple):
    """A directory that was removed, with its attributes, and whether it is there although no object implies it."""

    path: bytes
    like: os.stat_result
    is_held: bool


class LostPartitions:
    """Removes them, and tells of files that were not sent (event ``unsent-lost``)."""

    def __init__(self, base: Foundation) -> None:
        parts = base.parts
        self._store, self._tree, self._zones = parts.store, parts.store.tree, parts.zones
        self._index, self._entries, self._marks = parts.index, parts.index.entries, parts.index.marks
        self._events = parts.events
        self._invalidation, self._nodes = base.invalidation, base.nodes

    async def drop(self, disk: OtherDisk) -> None:
        """Remove the directories on ``disk``. Those that something holds up are left for the next call."""
        if not await self._is_noted(self._store.note_failed, disk.number):
            return
        paths = self._tree.partitions_on(disk.number)
        for start in range(0, len(paths), _IN_ONE_STEP):
            with_rights: list[_WithRights] = []
            for path in paths[start : start + _IN_ONE_STEP]:
                try:
                    with_rights += self._remove(path)
                except (OSError, HoldfastError) as problem:
                    _log.warning("%s, which is on a disk that has failed, can't be removed: %s", os.fsdecode(path), problem)
            self._invalidation.forget_removed()
            for each in with_rights:
                self._make_anew(each)
            await trio.lowlevel.checkpoint()
        await self._forget_files(disk.number)

    async def forget_given_up(self, disk: int) -> None:
        """Forget the files on the disk with this number that an earlier daemon, or this start, has given up."""
        await self._forget_files(disk)
        if await trio.to_thread.run_sync(self._index.sync):
            await self._is_noted(self._store.note_forgotten, disk)

    async def _is_noted(self, note: Callable[[int], None], disk: int) -> bool:
        """Note something of the disk with this number; return whether that succeeded."""
        try:
            await trio.to_thread.run_sync(note, disk)
        except (OSError, HoldfastError) as problem:
            _log.warning("the store's disks.json can't be changed: %s", problem)
            return False
        return True

    async def _forget_files(self, disk: int) -> None:
        """Forget the files in such directories on the disk with this number: they are in the tree no more."""
        slices = Slices()
        for file in await trio.to_thread.run_sync(self._entries.on_disk, disk):
            entry = self._entries.get(file)
            if entry is not None and self._is_gone(file, entry):
                self._entries.discard(file)
                if entry.is_unsent:
                    self._events.emit("unsent-lost", path=os.fsdecode(entry.path))
            await slices.pause()

    def _is_gone(self, file: FileId, entry: Entry) -> bool:
        """Say whether a file has been in the zone of a store, and is there no more."""
        paths = {entry.path, *(name.path for name in entry.names)} - {b""}
        in_stores = [path for path in paths if self._is_in_store(path)]
        try:
            return bool(in_stores) and all(self._tree.inode(path) != file for path in in_stores)
        except OSError:  # something holds the directory up
            return False

    def _is_in_store(self, path: bytes) -> bool:
        place = self._zones.child(self._zones.root, path.partition(b"/")[0])
        return place is None or place.zone.is_store

    def _remove(self, path: bytes) -> list[_WithRights]:
        """Remove a directory; return it if it has rights of its own. Raises ``OSError`` and ``HoldfastError``."""
        self._tree.held.check_moved(path)
        parent, _, name = path.rpartition(b"/")
        directory_fd = self._tree.open_directory(parent)
        try:
            found = file_stat(name, dir_fd=directory_fd, follow_symlinks=False)
            is_special = has_own_rights(found, os.stat(directory_fd))
            with self._tree.leaving(found.st_ino), keeping_mtime(directory_fd):
                os.rmdir(name, dir_fd=directory_fd)
        finally:
            os.close(directory_fd)
        self._invalidation.directory_removed(path, found.st_ino)
        removed = _WithRights(path, found, self._marks.is_held(found.st_ino))
        self._marks.let_go(found.st_ino)
        return [removed] if is_special else []

    def _make_anew(self, removed: _WithRights) -> None:
        """Make an empty directory with the rights of one that was removed, on another disk."""
        parent, _, name = removed.path.rpartition(b"/")
        try:
            directory_fd = self._tree.open_directory(parent)
            try:
                with keeping_mtime(directory_fd):
                    os.mkdir(name, 0o700, dir_fd=directory_fd)
                    make_like(directory_fd, name, removed.like)
                self._tree.place_partition(directory_fd, removed.path)
                inode = file_stat(name, dir_fd=directory_fd, follow_symlinks=False).st_ino
            finally:
                os.close(directory_fd)
        except OSError as problem:
            _log.warning("%s, which was on a disk that has failed, can't be made: %s", os.fsdecode(removed.path), problem)
            return
        self._nodes.begin(inode)
        if removed.is_held:
            self._marks.hold(inode)
