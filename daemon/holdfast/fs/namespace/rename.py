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
from functools import partial

from holdfast.errors import NoSuchEntryError
from holdfast.fs.file_io.files import Files
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.caller import Caller
from holdfast.fs.inodes.name_policy import Name, check_not_root, check_storable
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.file_move import FileMove, FileMoves
from holdfast.fs.namespace.link_upload import LinkUpload
from holdfast.fs.namespace.lookup import Lookup
from holdfast.fs.namespace.rename_completion import RenameCompletion
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.namespace.rename_exchange import Exchange
from holdfast.fs.remote_view.views import Views
from holdfast.fs.writeback.publisher import Sent
from holdfast.fs.writeback.remote_deletes import do_nothing
from holdfast.fs.writeback.sending import Sending
from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE
from holdfast.system.waits import before_waiting


class Renaming:
    """Carries out renameat2(2)."""

    def __init__(
        self, base: Foundation, views: Views, sending: Sending, files: Files, link_upload: LinkUpload, lookup: Lookup
    ) -> None:
        self._directories, self._nodes, self._policy = base.directories, base.nodes, base.policy
        self._admission = base.admission
        self._guard, self._versions, self._local_files = views.guard, sending.versions, files.local_files
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
        leaves = self._versions.to_delete(old, stat) if sent is None and old.zone.is_store else None
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
