"""The local step of a rename: tree, node and entry are changed without an await in between."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.namespace.link_upload import LinkUpload
from holdfast.fs.namespace.unlink import LostNames
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.remote_deletes import do_nothing
from holdfast.fs.writeback.sending import Sending
from holdfast.index import CachedName, Entry
from holdfast.store import RENAME_NOREPLACE
from holdfast.system.file_id import FileStat, file_stat


class FileMove(NamedTuple):
    """A rename of a file. ``stat`` holds its attributes before the rename."""

    old: Name
    new: Name
    flags: int
    stat: FileStat

    def is_of(self, stat: FileStat) -> bool:
        """Say whether these attributes are those of the moved file."""
        return stat.st_ino == self.stat.st_ino


class FileMoves:
    """Carries out moves. If the new name is an object's, the object has been stored before."""

    def __init__(self, base: Foundation, views: Views, sending: Sending, files: Files, link_upload: LinkUpload) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._updates, self._hot, self._fetcher = base.updates, base.hot, base.fetcher
        self._entries, self._freeing = base.parts.index.entries, base.parts.store.freeing
        self._hints = views.hints
        self._remote_deletes, self._versions = sending.remote_deletes, sending.versions
        self._check = files.check
        self._link_upload = link_upload
        self._lost_names = LostNames(base)

    def look(self, move: FileMove) -> tuple[FileStat | None, Sequence[OpenFile]]:
        """Return the attributes of the file that has the new name so far, and those of both files that are hot."""
        victim = self._directories.stat(move.new.directory, move.new.name)
        moved = self._hot.of(move.stat.st_ino)
        replaced = None if victim is None else self._hot.of(victim.st_ino)
        if moved is None and replaced is None:  # nearly always
            return victim, ()
        return victim, [each for each in (moved, replaced) if each is not None]

    def waits(self, move: FileMove, victim: FileStat | None) -> bool:
        """Say whether ``settle`` waits, if only a moment, though neither file is hot."""
        of_backing = self._nodes.of_backing
        if self._hot.written(of_backing(move.stat.st_ino)) is not None:
            return True
        return victim is not None and self._lost_names.waits(victim, of_backing(victim.st_ino))

    async def settle(self, move: FileMove, victim: FileStat | None) -> None:
        """Wait for the locks of both files, and for room for the other name of ``victim`` if that is open."""
        if victim is not None:
            await self._lost_names.settle(victim, self._nodes.of_backing(victim.st_ino))
        await self._hot.settle(move.stat.st_ino)

    def carry_out(
        self,
        move: FileMove,
        victim: FileStat | None,
        hot: Sequence[OpenFile],
        sent: Sent | None,
        *,
        keeps_object: bool,
        late: Callable[[], None],
    ) -> None:
        """Rename a file in the tree, and update its node and entry. Does nothing if both names lead to the same file.

        ``victim`` and ``hot`` are from ``look``, without an await since. ``sent`` is the object that was stored under the
        new name. With ``keeps_object`` the caller deletes the old name's object later. ``late`` is called if the file moves
        after ``FileBusyError``.
        """
        target_fd = self._directories.writable_descriptor(move.new.directory)
        if victim is not None and move.is_of(victim):
            return
        is_unsent = sent is None and move.new.sends
        replaced = self._versions.known(move.new, victim) if is_unsent else None
        forgotten = self._make_way(move, target_fd, victim)
        undo = do_nothing
        then = do_nothing
        if hot:
            follow = partial(self._follow, move, victim, sent, replaced, is_unsent=is_unsent)
            then = partial(self._follow_late, move, victim, follow, late, keeps_object=keeps_object)
        try:
            if not keeps_object:
                undo = self._remote_deletes.delete(move.old, move.stat)
            if victim is None:
                self._rename(move, target_fd, hot, then)
            else:
                with self._freeing.later(move.new.name, target_fd, victim):
                    self._rename(move, target_fd, hot, then)
        except (OSError, HoldfastError):
            undo()
            if victim is not None:
                self._lost_names.was_not_renamed_over(victim, forgotten)
            raise
        is_recorded = sent is not None or is_unsent or self._entries.get(move.stat.st_ino) is not None
        after = file_stat(move.new.name, dir_fd=target_fd, follow_symlinks=False) if is_recorded else move.stat
        self._follow(move, victim, sent, replaced, forgotten, after, is_unsent=is_unsent)

    def _follow_late(
        self,
        move: FileMove,
        victim: FileStat | None,
        follow: Callable[[Entry | None, FileStat], None],
        late: Callable[[], None],
        *,
        keeps_object: bool,
    ) -> None:
        """Follow a file that has moved after its user was told that it is busy. It may have lost its new name since."""
        late()
        after = self._directories.stat(move.new.directory, move.new.name)
        if after is None or not move.is_of(after):
            return
        if not keeps_object:
            self._remote_deletes.delete(move.old, move.stat)
        forgotten = None if victim is None else self._lost_names.was_renamed_over_late(move.new, victim)
        follow(forgotten, after)

    def _rename(self, move: FileMove, target_fd: int, hot: Sequence[OpenFile], then: Callable[[], None]) -> None:
        source_fd = self._directories.descriptor(move.old.directory)
        old, new = move.old.name, move.new.name
        if hot:
            self._hot.rename(hot, source_fd, old, target_fd, new, then=then)
        else:
            os.rename(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd)

    def _make_way(self, move: FileMove, target_fd: int, victim: FileStat | None) -> Entry | None:
        """Handle the file that has the new name so far; return its entry. Raises ``FileExistsError``."""
        forgotten = None
        if victim is not None:
            if move.flags & RENAME_NOREPLACE:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            forgotten = self._lost_names.before_rename_over(move.new, target_fd, victim)
        if move.new.zone.remote is not None:
            self._fetcher.detach(move.new.path)
        self._nodes.drop_path(move.new.path)
        return forgotten

    def _follow(
        self,
        move: FileMove,
        victim: FileStat | None,
        sent: Sent | None,
        replaced: CachedName | None,
        forgotten: Entry | None,
        after: FileStat,
        *,
        is_unsent: bool,
    ) -> None:
        """Update nodes and entry. ``forgotten`` was the victim's entry; ``after`` holds the file's attributes now.

        Without an entry, before or now, nothing depends on what the rename changes: the ctime.
        """
        if victim is not None:
            self._lost_names.name_removed(self._nodes.of_backing(victim.st_ino), move.new, victim, forgotten)
        old, new = move.old, move.new
        node = self._nodes.local(old.directory, old.name, move.stat.st_ino, move.stat.st_mode)
        self._nodes.drop_name(node, old.directory, old.name)
        self._nodes.add_name(node, new.directory, new.name)
        self._move_entry(node, move.stat, after, old.path)
        if sent is not None:
            self._link_upload.record(node, new, self._directories.descriptor(new.directory), sent, after)
        elif is_unsent:
            self._mark_unsent(after, new.path, replaced)
        elif stat_module.S_ISREG(after.st_mode):
            self._check.later(new.place, node)
        if old.zone.remote is not None and old.policy.awaits_rename:
            self._hints.temporary_gone(old.place.path, old.name)

    def _move_entry(self, node: Node, before: FileStat, after: FileStat, old_path: bytes) -> None:
        """Update the entry of a renamed file. Without a digest the entry is dropped, because changes would go unnoticed."""
        entry = self._updates.refresh(before, after)
        if entry is not None and not self._policy.has_digest(node):
            self._entries.discard(after.st_ino)
        elif entry is not None:
            entry.drop_name(old_path)
            self._entries.put(after.st_ino, entry)

    def _mark_unsent(self, stat: FileStat, path: bytes, replaced: CachedName | None) -> None:
        """Note that the store has another file, ``replaced``, under the new name until this one is sent or removed."""
        entry = self._updates.mark_dirty(stat, path)
        if replaced is not None:
            entry.set_name(replaced)
            self._entries.put(stat.st_ino, entry)
