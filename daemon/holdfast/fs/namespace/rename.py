"""link and rename: names that appear, together with names that go.

Where the new name is an object's, its PUT comes first and decides; the local step follows without an await between. Where
the old name was an object's, its deletion is noted before the local step; but when the file leaves the store, and this
disk will have its only copy, the deletion is noted last, with file and name synced. Every crash between these leaves the
bytes under at least one of the names.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from contextlib import nullcontext

import trio

from holdfast.errors import HoldsObjectsError, NoSuchEntryError, ZoneRootBusyError
from holdfast.fs.file_io.opens import OpenFiles
from holdfast.fs.file_io.passthrough_writes import PassthroughWrites
from holdfast.fs.inodes.core import Caller, Core
from holdfast.fs.inodes.nodes import Node
from holdfast.fs.inodes.replay import FIRST, Attempt
from holdfast.fs.namespace.link_upload import LinkUpload
from holdfast.fs.namespace.remove import Removal
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.namespace.rename_exchange import exchange
from holdfast.fs.remote_view.create_hints import CreateHints
from holdfast.fs.writeback.publisher import Publisher, Sent
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.index import CachedName
from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE
from holdfast.zones import NameKind, ZoneKind, ZonePath


class Renames:
    """link(2) and renameat2(2)."""

    def __init__(
        self,
        core: Core,
        publisher: Publisher,
        backlog: WritebackQueue,
        removal: Removal,
        opens: OpenFiles,
        unseen: PassthroughWrites,
        intents: CreateHints,
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._backlog = backlog
        self._removal = removal
        self._opens = opens
        self._intents = intents
        self._new_names = LinkUpload(core, publisher, backlog, opens, unseen)
        self._directories = DirectoryRenames(core)

    async def link(
        self, node: Node, directory: Node, name: bytes, caller: Caller, attempt: Attempt = FIRST
    ) -> os.stat_result:
        """link(2): another name for the same node; in a sending zone another object with the same bytes."""
        core = self._core
        place = core.directories.place(directory)
        self._check_target(place)
        await self._opens.make_local(node)
        self._directory_of(node)
        sent = None
        if core.sends(place, name):
            is_hidden = core.index.marks.is_whited_out(place.child_path(name))
            sent = await self._new_names.send(node, node.names(), place, name, caller, create_only=not is_hidden)
        return self._add_name(node, directory, name, sent, attempt)

    def link_nowait(self, node: Node, directory: Node, name: bytes) -> os.stat_result:
        """``link`` of a file whose bytes need not be looked at, to where nothing is sent; else ``trio.WouldBlock``."""
        core = self._core
        place = core.directories.place(directory)
        self._check_target(place)
        if node.backing == 0 or core.lock(node).locked() or core.has_digest(node) or core.sends(place, name):
            raise trio.WouldBlock
        return self._add_name(node, directory, name, None, FIRST)

    def _add_name(self, node: Node, directory: Node, name: bytes, sent: Sent | None, attempt: Attempt) -> os.stat_result:
        core = self._core
        source_fd = core.directories.descriptor(self._directory_of(node))
        target_fd = core.writable_descriptor(directory)
        before = os.stat(node.name, dir_fd=source_fd, follow_symlinks=False)
        if not (attempt.resent and self._same_file(directory, name, before)):
            os.link(node.name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
        core.nodes.add_name(node, directory, name)
        stat = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
        if sent is not None:
            self._new_names.record(node, directory, name, sent, stat)
        else:
            core.refresh_entry(before, stat)
            if stat_module.S_ISREG(stat.st_mode):
                self._opens.digest_later(core.directories.place(directory), node)
        return stat

    def rename_nowait(self, source: Node, old: bytes, target: Node, new: bytes, flags: int) -> None:
        """``rename`` of a file between names that are no objects' and hide none; else ``trio.WouldBlock``."""
        core = self._core
        self._check_flags(flags)
        here, there = core.directories.place(source), core.directories.place(target)
        self._check_target(here)
        self._check_target(there)
        stat = core.local_stat(source, old)
        if flags & RENAME_EXCHANGE or stat is None or stat_module.S_ISDIR(stat.st_mode):
            raise trio.WouldBlock
        if core.sends(here, old) or core.sends(there, new):
            raise trio.WouldBlock
        self._move(source, old, target, new, stat, None, flags=flags)

    async def rename(
        self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller, attempt: Attempt = FIRST
    ) -> None:
        """renameat2(2)."""
        core = self._core
        self._check_flags(flags)
        here, there = core.directories.place(source), core.directories.place(target)
        self._check_target(here)
        self._check_target(there)
        if flags & RENAME_EXCHANGE:
            exchange(core, source, old, target, new, here, there, attempt)
            return
        stat = core.local_stat(source, old)
        if stat is not None:
            node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        elif (found := core.nodes.of_path(here.child_path(old))) is not None:
            node = found
        elif attempt.resent and core.local_stat(target, new) is not None:
            await self._renamed_before(source, old, target, new)
            return
        else:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        if node.is_directory:
            await self._directories.rename(source, old, target, new, flags, here, there)
            return
        if node.backing == 0 or core.sends(here, old):
            await self._opens.make_local(node)
        await self._rename_file(source, old, target, new, flags, caller)

    async def _rename_file(self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller) -> None:
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        stat = core.local_stat(source, old)
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        if self._same_file(target, new, stat):
            return
        node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        sent = None
        if core.sends(there, new):
            if not stat_module.S_ISREG(stat.st_mode):
                raise HoldsObjectsError("object stores can't keep special files")
            others = [name for name in node.names() if name != (source, old)]
            sent = await self._new_names.send(node, others, there, new, caller, create_only=bool(flags & RENAME_NOREPLACE))
        leaves = self._publisher.version_to_go(here, old, stat) if sent is None and here.zone.is_store else None
        if leaves is not None:
            with self._opens.descriptor_of(node) as fd:
                await trio.to_thread.run_sync(os.fsync, fd)
        self._move(source, old, target, new, stat, sent, flags=flags, keeps_object=leaves is not None)
        is_unsent = sent is None and core.sends(there, new)
        if is_unsent:
            node = core.nodes.local(target, new, stat.st_ino, stat.st_mode)  # nobody may have known of it before
            with self._opens.descriptor_of(node) as fd:
                await self._backlog.keep_named(fd, there.child_path(new))
        if leaves is not None or is_unsent:
            await core.sync_directory(target)
        if leaves is not None:
            self._publisher.delete_object(here, old, leaves)

    def _move(
        self,
        source: Node,
        old: bytes,
        target: Node,
        new: bytes,
        stat: os.stat_result,
        sent: Sent | None,
        *,
        flags: int,
        keeps_object: bool = False,
    ) -> None:
        """Rename a file, whose attributes are ``stat``, in the tree and in all that is known of it.

        With both names leading to one file already nothing is done (rename(2)). ``keeps_object``: not yet retracted.
        """
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        target_fd = core.writable_descriptor(target)
        if self._same_file(target, new, stat):
            return
        is_unsent = sent is None and core.sends(there, new)
        replaced = self._publisher.version_of(there, new, core.local_stat(target, new)) if is_unsent else None
        victim = self._make_way(target, new, target_fd, flags)
        if not keeps_object:
            self._publisher.retract(here, old, stat)
        with nullcontext() if victim is None else core.store.freeing.later(new, target_fd, victim):
            os.rename(old, new, src_dir_fd=core.directories.descriptor(source), dst_dir_fd=target_fd)
        if victim is not None:
            self._removal.lost_name(target, new, victim)
        node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        core.nodes.drop_name(node, source, old)
        core.nodes.add_name(node, target, new)
        after = os.stat(new, dir_fd=target_fd, follow_symlinks=False)
        self._move_entry(node, stat, after, here.child_path(old))
        if sent is not None:
            self._new_names.record(node, target, new, sent, after)
        elif is_unsent:
            self._mark_unsent(after, there.child_path(new), replaced)
        elif stat_module.S_ISREG(after.st_mode):
            self._opens.digest_later(there, node)
        if here.zone.remote is not None and core.kind_of(here, old) is NameKind.TEMPORARY:
            self._intents.temporary_gone(here.path, old)

    async def _renamed_before(self, source: Node, old: bytes, target: Node, new: bytes) -> None:
        """An earlier daemon has moved the file, and has perhaps not done what follows that: do it again."""
        core = self._core
        core.directories.renamed()
        here, there = core.directories.place(source), core.directories.place(target)
        stat = core.local_stat(target, new)
        leaves = None
        if here.zone.is_store and core.sends(here, old):
            leaves = self._publisher.version_left(here, old, stat)
        entry = core.index.entries.get(stat.st_ino) if stat is not None else None
        if stat is not None and entry is not None:
            entry.drop_name(here.child_path(old))
            core.index.entries.put(stat.st_ino, entry)
        is_unsent = self._backlog.takes(there) and core.sends(there, new)
        if is_unsent and stat is not None and stat_module.S_ISREG(stat.st_mode):
            with self._opens.descriptor_of(core.nodes.local(target, new, stat.st_ino, stat.st_mode)) as fd:
                await self._backlog.keep_named(fd, there.child_path(new))
        if leaves is not None and core.local_stat(source, old) is None:
            self._publisher.delete_object(here, old, leaves)

    def _mark_unsent(self, stat: os.stat_result, path: bytes, replaced: CachedName | None) -> None:
        """The file has a name under which the store has another one, ``replaced``, until it is sent, or removed before."""
        entry = self._core.mark_dirty(stat, path)
        if replaced is not None:
            entry.set_name(replaced)
            self._core.index.entries.put(stat.st_ino, entry)

    def _make_way(self, target: Node, new: bytes, target_fd: int, flags: int) -> os.stat_result | None:
        """See to what has the new name until now, and return its attributes. Raises ``FileExistsError``."""
        core = self._core
        victim = core.local_stat(target, new)
        if victim is not None:
            if flags & RENAME_NOREPLACE:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._shelter(target, new, target_fd, victim)
        path = core.directories.place(target).child_path(new)
        core.fetcher.detach(path)
        core.nodes.drop_path(path)
        return victim

    def _directory_of(self, node: Node) -> Node:
        if node.parent is None:
            raise NoSuchEntryError("a file without a name can't get one")
        return node.parent

    def _same_file(self, target: Node, new: bytes, stat: os.stat_result) -> bool:
        """Say whether both names lead to one file already: then rename(2) does nothing."""
        victim = self._core.local_stat(target, new)
        return victim is not None and victim.st_ino == stat.st_ino

    def _move_entry(self, node: Node, before: os.stat_result, after: os.stat_result, old_path: bytes) -> None:
        """Bring the entry of a renamed file up to date. Where nothing is held against a digest, changes go unnoticed."""
        entries = self._core.index.entries
        entry = self._core.refresh_entry(before, after)
        if entry is not None and not self._core.has_digest(node):
            entries.discard(after.st_ino)
        elif entry is not None:
            entry.drop_name(old_path)
            entries.put(after.st_ino, entry)

    def _shelter(self, target: Node, new: bytes, target_fd: int, victim: os.stat_result) -> None:
        """Prepare for a rename over ``new``: whoever has the old file open keeps it."""
        core = self._core
        if stat_module.S_ISDIR(victim.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        place = core.directories.place(target)
        node = core.nodes.of_backing(victim.st_ino)
        if victim.st_nlink == 1 and node is not None and node.opened is not None:
            core.store.orphanage.shelter(target_fd, new, victim.st_ino)
        core.residence.forget_name(place.child_path(new), victim)
        core.removals.begin(victim.st_ino, is_last=victim.st_nlink == 1)

    def _check_target(self, place: ZonePath) -> None:
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneRootBusyError("the zones of the mount can't be renamed")

    @staticmethod
    def _check_flags(flags: int) -> None:
        if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE):  # RENAME_WHITEOUT
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
