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

import trio

from holdfast.errors import HoldsObjectsError, NoSuchEntryError, UnsupportedError, ZoneRootBusyError
from holdfast.fs.backlog import Backlog
from holdfast.fs.core import Caller, Core
from holdfast.fs.intents import Intents
from holdfast.fs.nodes import Node
from holdfast.fs.opens import Opens
from holdfast.fs.publish import Publisher, Sent
from holdfast.fs.remove import Removal
from holdfast.fs.rename_directory import DirectoryRenames
from holdfast.fs.unseen import UnseenWrites
from holdfast.index import EntryState
from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE, rename_with_flags
from holdfast.zones import NameKind, Place, ZoneKind


class Renames:
    """link(2) and renameat2(2)."""

    def __init__(
        self,
        core: Core,
        publisher: Publisher,
        backlog: Backlog,
        removal: Removal,
        opens: Opens,
        unseen: UnseenWrites,
        intents: Intents,
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._backlog = backlog
        self._removal = removal
        self._opens = opens
        self._unseen = unseen
        self._intents = intents
        self._directories = DirectoryRenames(core)

    async def link(self, node: Node, directory: Node, name: bytes, caller: Caller) -> os.stat_result:
        """link(2): another name for the same node; in a sending zone another object with the same bytes."""
        core = self._core
        place = core.directories.place(directory)
        self._check_target(place)
        await self._opens.make_local(node)
        if node.parent is None:
            raise NoSuchEntryError("a file without a name can't get one")
        sent = None
        if core.sends(place, name):
            sent = await self._send(node, node.names(), place, name, caller, create_only=True)
        target_fd = core.writable_descriptor(directory)
        source_fd = core.directories.descriptor(node.parent)
        before = os.stat(node.name, dir_fd=source_fd, follow_symlinks=False)
        os.link(node.name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
        core.nodes.add_name(node, directory, name)
        stat = os.stat(name, dir_fd=target_fd, follow_symlinks=False)
        if sent is not None:
            self._record(node, directory, name, sent, stat)
        else:
            core.refresh_entry(before, stat)
            self._opens.digest_later(place, node)
        return stat

    async def rename(self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller) -> None:
        """renameat2(2)."""
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        self._check_target(here)
        self._check_target(there)
        if flags & RENAME_EXCHANGE:
            self._exchange(source, old, target, new, here, there)
            return
        stat = core.local_stat(source, old)
        if stat is not None:
            node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        elif (found := core.nodes.of_path(here.child_path(old))) is not None:
            node = found
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
            sent = await self._send(node, others, there, new, caller, create_only=bool(flags & RENAME_NOREPLACE))
        leaves_store = sent is None and self._publisher.has_object(here, old, stat)
        if leaves_store:
            with self._opens.descriptor_of(node) as fd:
                await trio.to_thread.run_sync(os.fsync, fd)
        self._make_way(target, new, flags)
        if not leaves_store:
            self._publisher.retract(here, old, stat)
        self._move(node, source, old, target, new, stat, sent)
        if leaves_store or (sent is None and core.sends(there, new)):
            await core.sync_directory(target)
        if leaves_store:
            self._publisher.delete_object(here, old)
        if here.zone.remote is not None and core.kind_of(here, old) is NameKind.TEMPORARY:
            self._intents.temporary_gone(here.path, old)

    def _make_way(self, target: Node, new: bytes, flags: int) -> None:
        """See to what has the new name until now. Raises ``FileExistsError`` when it must not be there."""
        core = self._core
        victim = core.local_stat(target, new)
        if victim is not None:
            if flags & RENAME_NOREPLACE:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._shelter(target, new, core.writable_descriptor(target), victim)
        path = core.directories.place(target).child_path(new)
        core.fetcher.detach(path)
        core.nodes.drop_path(path)

    def _move(
        self, node: Node, source: Node, old: bytes, target: Node, new: bytes, stat: os.stat_result, sent: Sent | None
    ) -> None:
        """Rename the file ``stat`` in the tree, and bring node and entry up to date."""
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        target_fd = core.writable_descriptor(target)
        os.rename(old, new, src_dir_fd=core.directories.descriptor(source), dst_dir_fd=target_fd)
        core.nodes.drop_name(node, source, old)
        core.nodes.add_name(node, target, new)
        after = os.stat(new, dir_fd=target_fd, follow_symlinks=False)
        self._move_entry(node, stat, after, here.child_path(old))
        if sent is not None:
            self._record(node, target, new, sent, after)
            self._publisher.drop_sidecar(there, new)
        elif core.sends(there, new):
            core.mark_dirty(after, there.child_path(new))
            self._backlog.add(there.child_path(new))
        elif stat_module.S_ISREG(after.st_mode):
            self._opens.digest_later(there, node)

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

    def _record(self, node: Node, directory: Node, name: bytes, sent: Sent, stat: os.stat_result) -> None:
        """The store has the bytes of the file ``stat`` under the name that it has just got."""
        entry = self._core.index.entries.get(stat.st_ino)
        unsent = entry is not None and entry.state in (EntryState.DIRTY, EntryState.UPLOADING) and not entry.digest
        others = self._sent_names([other for other in node.names() if other != (directory, name)])
        self._publisher.record([sent], stat, entry, others_unsent=unsent and others)

    def _sent_names(self, names: list[tuple[Node, bytes]]) -> bool:
        return any(self._core.sends(self._core.directories.place(parent), name) for parent, name in names)

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
        self._removal.lost_name(target, new, victim)

    async def _send(
        self,
        node: Node,
        others: list[tuple[Node, bytes]],
        place: Place,
        name: bytes,
        caller: Caller,
        *,
        create_only: bool,
    ) -> Sent | None:
        """Store the object of a name that is about to appear; None where that is left to the backlog.

        ``others`` are the names that the file has beside it: what is unsent stays so, if it is to be sent under these too.
        """
        once = create_only or self._publisher.is_write_once(place, name)
        opened = node.opened
        was_unsent = False
        if opened is not None:
            self._unseen.notice(opened)
            was_unsent = opened.unsent
            if not self._sent_names(others):
                opened.on_its_way()
        try:
            with self._opens.descriptor_of(node) as fd:
                if not once and self._backlog.takes(place):
                    await self._backlog.keep(fd)
                    return None
                sent = await self._publisher.send(fd, place, name, create_only=once)
        except BaseException:
            if opened is not None:
                opened.unsent = opened.unsent or was_unsent
            raise
        self._publisher.created_by(place, name, caller)
        return sent

    def _exchange(self, source: Node, old: bytes, target: Node, new: bytes, here: Place, there: Place) -> None:
        core = self._core
        pairs = []
        before: dict[int, os.stat_result] = {}
        for directory, name, place in ((source, old, here), (target, new, there)):
            stat = core.local_stat(directory, name)
            if stat is None:
                raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
            child = core.zones.child(place, name)
            is_directory = stat_module.S_ISDIR(stat.st_mode)
            if is_directory and (child is None or core.zones.is_fixed(child)):
                raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
            if place.zone.remote is not None and (is_directory or core.sends(place, name)):
                raise UnsupportedError("objects can't be exchanged in one step")
            before[stat.st_ino] = stat
            pairs.append((directory, name, core.nodes.local(directory, name, stat.st_ino, stat.st_mode)))
        rename_with_flags(
            core.directories.descriptor(source), old, core.directories.descriptor(target), new, RENAME_EXCHANGE
        )
        (first_dir, first_name, first), (second_dir, second_name, second) = pairs
        for node, lost, won in ((first, pairs[0], pairs[1]), (second, pairs[1], pairs[0])):
            core.nodes.drop_name(node, lost[0], lost[1])
            core.nodes.add_name(node, won[0], won[1])
        core.directories.renamed()
        for directory, name in ((first_dir, first_name), (second_dir, second_name)):
            after = core.local_stat(directory, name)
            if after is not None:
                core.refresh_entry(before[after.st_ino], after)

    def _check_target(self, place: Place) -> None:
        if place.zone.kind is ZoneKind.ROOT:
            raise ZoneRootBusyError("the zones of the mount can't be renamed")
