"""RENAME, from top to bottom.

If the new name is an object's, its PUT comes first and decides; the local step follows without an await in between. If the
old name was an object's, its deletion is recorded before the local step. But if the file leaves the store, so that this disk
has the only copy, the deletion is recorded last, after file and name are synced. A crash at any point leaves the bytes under
at least one of the names.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.errors import HoldfastError, NoSuchEntryError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name, check_not_root, check_storable
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.link import LinkUpload
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.rename_completion import FileMove, RenameCompletion
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.namespace.rename_exchange import Exchange
from holdfast.fs.namespace.unlink import LostNames
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.remote_deletes import do_nothing
from holdfast.fs.writeback.sending import Sending
from holdfast.index import CachedName, Entry
from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE
from holdfast.system.file_id import FileStat, file_stat
from holdfast.system.waits import before_waiting


class Renaming:
    """Carries out renameat2(2)."""

    def __init__(
        self, base: Foundation, views: Views, sending: Sending, files: Files, link_upload: LinkUpload, lookup: Lookup
    ) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._admission = base.admission
        self._guard, self._remote_deletes, self._local_files = views.guard, sending.remote_deletes, files.local_files
        self._link_upload = link_upload
        self._lookup = lookup
        self._moves = FileMoves(base, views, sending, files, link_upload)
        self._completion = RenameCompletion(base, sending, files)
        self._directory_renames = DirectoryRenames(base, views.whiteouts)
        self._exchange = Exchange(base)

    async def rename(
        self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller, attempt: Attempt = FIRST
    ) -> None:
        """Rename the entry ``old`` in ``source``.

        Raises ``RemoteError`` if only the store knows the name and it does not answer.
        """
        here, there = self._resolved(source, old, target, new, flags)
        stat = self._directories.stat(source, old)
        if stat is None and not attempt.resent and self._lookup.is_unknown(source, old):
            await self._lookup.learn(source, old)
            here, there = self._resolved(source, old, target, new, flags)
            stat = self._directories.stat(source, old)
        if caller.uid:
            self._guard.check_take(here, stat, caller)
            self._guard.check_put(there, caller)
        if source is not target and self._directories.is_spread:
            self._directories.check_one_disk(source, target)
        self._admission.check_takes_new(target, source)  # before anything is sent
        if flags & RENAME_EXCHANGE:
            self._admission.check_takes_new(source, target)
            await self._exchange_names(here, there, caller, attempt)
            return
        if stat is None or here.sends or stat_module.S_ISDIR(stat.st_mode):
            node = (
                self._nodes.of_path(here.path) if stat is None else self._nodes.local(source, old, stat.st_ino, stat.st_mode)
            )
            if node is None and attempt.resent and self._directories.stat(target, new) is not None:
                await self._completion.finish_resent(source, old, target, new)
                return
            if node is None:
                raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
            if node.is_directory:
                await before_waiting()
                await self._guard.check_take_below([here], caller)
                await self._directory_renames.rename(here, there, flags)
                return
            if not self._local_files.is_local(node):
                await self._local_files.make_local(node)
                here, there = self._policy.name(source, old), self._policy.name(target, new)
                stat = self._directories.stat(source, old)
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        await self._rename_file(FileMove(here, there, flags, stat), caller)

    async def _exchange_names(self, here: Name, there: Name, caller: Caller, attempt: Attempt) -> None:
        await before_waiting()
        self._guard.check_take(there, self._directories.stat(there.directory, there.name), caller)
        await self._guard.check_take_below([here, there], caller)
        await self._exchange.settle(here, there)
        self._exchange.exchange(here, there, attempt)

    async def _rename_file(self, move: FileMove, caller: Caller) -> None:
        """Rename a file that is complete and local."""
        old, new, stat = move.old, move.new, move.stat
        check_storable(new.zone, stat.st_mode)
        victim, hot = self._moves.look(move)
        if hot or self._moves.waits(move, victim):
            await self._moves.settle(move, victim)  # before anything is sent
            victim, hot = self._moves.look(move)
        if victim is not None and move.is_of(victim):
            return
        sent = await self._send(move, caller) if new.sends else None
        leaves = self._remote_deletes.to_delete(old, stat) if sent is None and old.zone.is_store else None
        if leaves is not None:
            await before_waiting()
            await self._completion.sync_file(move)
        if new.sends or leaves is not None:
            victim, hot = self._moves.look(move)
        is_unsent = sent is None and new.sends
        is_complete = leaves is None and not is_unsent
        late = do_nothing if is_complete else partial(self._completion.complete_later, move, leaves, is_unsent=is_unsent)
        self._moves.carry_out(move, victim, hot, sent, keeps_object=leaves is not None, late=late)
        if not is_complete:
            await self._completion.complete(move, leaves, is_unsent=is_unsent)

    async def _send(self, move: FileMove, caller: Caller) -> Sent | None:
        """Store the object of the new name. Returns None if it is sent later. Raises ``RemoteError``."""
        old = move.old
        node = self._nodes.local(old.directory, old.name, move.stat.st_ino, move.stat.st_mode)
        create_only = bool(move.flags & RENAME_NOREPLACE)
        return await self._link_upload.send(node, move.new, caller, create_only=create_only, replaced=old)

    def _resolved(self, source: Node, old: bytes, target: Node, new: bytes, flags: int) -> tuple[Name, Name]:
        """Resolve both names. Raises for flags and places that are not allowed."""
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE):  # RENAME_WHITEOUT
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        here, there = self._policy.name(source, old), self._policy.name(target, new)
        check_not_root(here, there)
        return here, there


class FileMoves:
    """Carries out the local step: tree, node and entry are changed without an await in between.

    If the new name is an object's, the object has been stored before.
    """

    def __init__(self, base: Foundation, views: Views, sending: Sending, files: Files, link_upload: LinkUpload) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._hot, self._fetcher = base.hot, base.fetcher
        self._entries, self._freeing = base.parts.index.entries, base.parts.store.freeing
        self._hints = views.hints
        self._remote_deletes, self._check = sending.remote_deletes, files.check
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
        replaced = self._remote_deletes.known(move.new, victim) if is_unsent else None
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
        entry = self._entries.refresh(before, after)
        if entry is not None and not self._policy.has_digest(node):
            self._entries.discard(after.st_ino)
        elif entry is not None:
            entry.drop_name(old_path)
            self._entries.put(after.st_ino, entry)

    def _mark_unsent(self, stat: FileStat, path: bytes, replaced: CachedName | None) -> None:
        """Note that the store has another file, ``replaced``, under the new name until this one is sent or removed."""
        entry = self._entries.mark_dirty(stat, path)
        if replaced is not None:
            entry.set_name(replaced)
            self._entries.put(stat.st_ino, entry)
