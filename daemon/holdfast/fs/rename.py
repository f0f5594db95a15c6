"""link and rename: names that appear, together with names that go.

Where the new name is an object's, its PUT comes first and decides; the local step follows without an await between. Where
the old name was an object's, its deletion is noted before the local step. Every crash between these leaves the bytes
under at least one of the names.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module

import trio

from holdfast.errors import HoldsObjectsError, NoSuchEntryError, UnsupportedError, ZoneRootBusyError
from holdfast.fs.attempts import FIRST, Attempt
from holdfast.fs.backlog import Backlog
from holdfast.fs.core import LOCAL_KINDS, Caller, Core
from holdfast.fs.intents import Intents
from holdfast.fs.nodes import Node
from holdfast.fs.opens import Opens
from holdfast.fs.publish import Publisher, Sent
from holdfast.fs.remove import Removal
from holdfast.index import Entry, EntryState
from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE, rename_with_flags
from holdfast.zones import NameKind, Place, ZoneKind


class Renames:
    """link(2) and renameat2(2)."""

    def __init__(
        self, core: Core, publisher: Publisher, backlog: Backlog, removal: Removal, opens: Opens, intents: Intents
    ) -> None:
        self._core = core
        self._publisher = publisher
        self._backlog = backlog
        self._removal = removal
        self._opens = opens
        self._intents = intents

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
            sent = await self._send(node, place, name, caller, create_only=True)
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
            entry = core.index.entries.get(stat.st_ino)
            unsent = entry is not None and entry.state in (EntryState.DIRTY, EntryState.UPLOADING) and not entry.digest
            self._publisher.record([sent], stat, entry, others_unsent=unsent)
        else:
            core.refresh_entry(before, stat)
            self._opens.digest_later(core.directories.place(directory), node)
        return stat

    def rename_nowait(self, source: Node, old: bytes, target: Node, new: bytes, flags: int) -> None:
        """``rename`` of a file between names that are no objects' and hide none; else ``trio.WouldBlock``."""
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        self._check_target(here)
        self._check_target(there)
        stat = core.local_stat(source, old)
        if flags & RENAME_EXCHANGE or stat is None or stat_module.S_ISDIR(stat.st_mode):
            raise trio.WouldBlock
        if core.sends(here, old) or core.sends(there, new):
            raise trio.WouldBlock
        self._move(source, old, target, new, stat, None, keep_target=bool(flags & RENAME_NOREPLACE))

    async def rename(
        self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller, attempt: Attempt = FIRST
    ) -> None:
        """renameat2(2)."""
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        self._check_target(here)
        self._check_target(there)
        if flags & RENAME_EXCHANGE:
            self._exchange(source, old, target, new, here, there, attempt)
            return
        stat = core.local_stat(source, old)
        if stat is not None:
            node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        elif (found := core.nodes.of_path(here.child_path(old))) is not None:
            node = found
        elif attempt.resent and core.local_stat(target, new) is not None:
            self._renamed_before(here.child_path(old), target, new, there)
            return
        else:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        if node.is_directory:
            await self._rename_directory(source, old, target, new, flags, here, there)
            return
        if node.backing == 0 or core.sends(here, old):
            await self._opens.make_local(node)
        await self._rename_file(source, old, target, new, flags, caller)

    async def _rename_file(self, source: Node, old: bytes, target: Node, new: bytes, flags: int, caller: Caller) -> None:
        core = self._core
        there = core.directories.place(target)
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
            sent = await self._send(node, there, new, caller, create_only=bool(flags & RENAME_NOREPLACE))
        self._move(source, old, target, new, stat, sent, keep_target=bool(flags & RENAME_NOREPLACE))
        if sent is None and core.sends(there, new):
            self._backlog.add(there.child_path(new))
            await core.sync_directory(target)

    def _move(
        self,
        source: Node,
        old: bytes,
        target: Node,
        new: bytes,
        stat: os.stat_result,
        sent: Sent | None,
        *,
        keep_target: bool,
    ) -> None:
        """Rename a file, whose attributes are ``stat``, in the tree and in all that is known of it.

        With both names leading to one file already nothing is done (rename(2)).
        """
        core = self._core
        here, there = core.directories.place(source), core.directories.place(target)
        target_fd = core.writable_descriptor(target)
        victim = core.local_stat(target, new)
        if victim is not None:
            if victim.st_ino == stat.st_ino:
                return
            if keep_target:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._shelter(target, new, target_fd, victim)
        core.fetcher.detach(there.child_path(new))
        core.nodes.drop_path(there.child_path(new))
        self._publisher.retract(here, old, stat)
        os.rename(old, new, src_dir_fd=core.directories.descriptor(source), dst_dir_fd=target_fd)
        node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        core.nodes.drop_name(node, source, old)
        core.nodes.add_name(node, target, new)
        after = os.stat(new, dir_fd=target_fd, follow_symlinks=False)
        entry = self._moved_entry(stat, after, here.child_path(old))
        if sent is not None:
            self._publisher.record([sent], after, entry)
            if node.opened is not None and sent.stable:
                node.opened.on_its_way()
            self._publisher.drop_sidecar(there, new)
        elif core.sends(there, new):
            core.mark_dirty(after, there.child_path(new))
        elif stat_module.S_ISREG(after.st_mode):
            self._opens.digest_later(there, node)
        if here.zone.remote is not None and core.kind_of(here, old) is NameKind.TEMPORARY:
            self._intents.temporary_gone(here.path, old)

    def _renamed_before(self, old_path: bytes, target: Node, new: bytes, there: Place) -> None:
        """An earlier daemon has moved the file, and has perhaps not done what follows that. The object comes before it."""
        core = self._core
        core.directories.renamed()
        stat = core.local_stat(target, new)
        assert stat is not None
        entry = core.index.entries.get(stat.st_ino)
        if entry is not None:
            entry.drop_name(old_path)
            core.index.entries.put(stat.st_ino, entry)
        if stat_module.S_ISREG(stat.st_mode) and core.sends(there, new):
            self._backlog.add(there.child_path(new))  # sends it if it is marked as unsent

    def _directory_of(self, node: Node) -> Node:
        if node.parent is None:
            raise NoSuchEntryError("a file without a name can't get one")
        return node.parent

    def _same_file(self, target: Node, new: bytes, stat: os.stat_result) -> bool:
        """Say whether both names lead to one file already: then rename(2) does nothing."""
        victim = self._core.local_stat(target, new)
        return victim is not None and victim.st_ino == stat.st_ino

    def _moved_entry(self, before: os.stat_result, after: os.stat_result, old_path: bytes) -> Entry | None:
        """Bring the entry of a renamed file up to date; return it."""
        entry = self._core.refresh_entry(before, after)
        if entry is not None:
            entry.drop_name(old_path)
            self._core.index.entries.put(after.st_ino, entry)
        return entry

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

    async def _send(self, node: Node, place: Place, name: bytes, caller: Caller, *, create_only: bool) -> Sent | None:
        """Store the object of a name that is about to appear; None where that is left to the backlog."""
        once = create_only or self._publisher.is_write_once(place, name)
        with self._opens.descriptor_of(node) as fd:
            if not once and self._backlog.takes(place):
                await self._backlog.keep(fd)
                return None
            sent = await self._publisher.send(fd, place, name, create_only=once)
        self._publisher.created_by(place, name, caller)
        return sent

    async def _rename_directory(
        self, source: Node, old: bytes, target: Node, new: bytes, flags: int, here: Place, there: Place
    ) -> None:
        core = self._core
        moved, goal = core.zones.child(here, old), core.zones.child(there, new)
        if moved is None or goal is None or core.zones.is_fixed(moved) or core.zones.is_fixed(goal):
            raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
        if moved.zone != goal.zone and (moved.zone.remote or goal.zone.remote):
            raise HoldsObjectsError("a directory can't be renamed into or out of a store's zone; mv copies it")
        if moved.zone.is_store or moved.zone.sends:
            key = core.object_at(here, old).key
            if await core.remote_of(here.zone).access.holds_any(key):
                raise HoldsObjectsError(f"{key} holds objects; mv copies them")
        if moved.zone.sends and await trio.to_thread.run_sync(self._would_send, moved.path, goal):
            raise HoldsObjectsError(f"files in {os.fsdecode(moved.path)} are to be sent; mv copies them, which sends them")
        stat = core.local_stat(source, old)
        if stat is None:
            raise NoSuchEntryError(f"there is no {os.fsdecode(old)}")
        target_fd = core.writable_descriptor(target)
        victim = core.local_stat(target, new)
        rename_with_flags(core.directories.descriptor(source), old, target_fd, new, flags & RENAME_NOREPLACE)
        if victim is not None:
            self._directory_replaced(target, new, victim)
        node = core.nodes.local(source, old, stat.st_ino, stat.st_mode)
        core.nodes.drop_name(node, source, old)
        core.nodes.add_name(node, target, new)
        core.directories.renamed()
        if moved.zone.is_store:
            core.remote_of(here.zone).directories.forget_below(core.listing(moved).key)
            core.listing(goal).believe_empty()

    def _would_send(self, directory: bytes, goal: Place) -> bool:
        """Say whether a file in ``directory`` has a final name once the directory is ``goal``: it would never be sent."""
        core = self._core
        return any(
            core.names.kind_of(goal.zone.key_of(goal.path + path[len(directory) :])) not in LOCAL_KINDS
            for path, stat in core.store.tree.walk(directory)
            if stat_module.S_ISREG(stat.st_mode)
        )

    def _directory_replaced(self, target: Node, new: bytes, victim: os.stat_result) -> None:
        core = self._core
        node = core.nodes.of_backing(victim.st_ino)
        core.index.marks.let_go(victim.st_ino)
        if node is not None:
            core.directories.forget(node)
            core.nodes.drop_name(node, target, new)
            core.nodes.unbind(node)

    def _exchange(
        self, source: Node, old: bytes, target: Node, new: bytes, here: Place, there: Place, attempt: Attempt
    ) -> None:
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
        note = b"%d %d" % (pairs[0][2].backing, pairs[1][2].backing)
        if attempt.resent and core.session.records.noted(attempt.number) not in (None, note):
            return  # each is where the other was when it began
        core.session.records.note(attempt.number, note)
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
