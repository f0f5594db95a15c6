"""renameat2(2) with RENAME_EXCHANGE, for two names that are not sent."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from holdfast.errors import FileBusyError, NoSuchEntryError, UnsupportedError, ZoneRootBusyError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.entry_updates import EntryUpdates
from holdfast.fs.inodes.hot_files import HotFiles
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.replay import Attempt
from holdfast.fs.namespace.new_entries import check_storable
from holdfast.session import SessionRecords
from holdfast.store import RENAME_EXCHANGE, Tree, rename_with_flags
from holdfast.zones import ZoneMap, ZonePath


class Exchange:
    """Exchanges names."""

    def __init__(
        self,
        directories: Directories,
        nodes: NodeTable,
        zones: ZoneMap,
        policy: NamePolicy,
        updates: EntryUpdates,
        records: SessionRecords,
        tree: Tree,
        hot: HotFiles,
    ) -> None:
        self._tree = tree
        self._hot = hot
        self._directories = directories
        self._nodes = nodes
        self._zones = zones
        self._policy = policy
        self._updates = updates
        self._records = records

    async def settle(self, source: Node, old: bytes, target: Node, new: bytes) -> None:
        """Wait for the locks of both files, if users can hold them."""
        for directory, name in ((source, old), (target, new)):
            stat = self._directories.stat(directory, name)
            if stat is not None:
                await self._hot.settle(stat.st_ino)

    def exchange(
        self, source: Node, old: bytes, target: Node, new: bytes, here: ZonePath, there: ZonePath, attempt: Attempt
    ) -> None:
        """Exchange ``old`` in ``source``, which is at ``here``, with ``new`` in ``target``, at ``there``.

        Afterwards the state does not show whether it was done. So the inodes of both names are recorded first.
        """
        involves_store = any(place.zone.is_store or place.zone.sends for place in (here, there))
        pairs = []
        before: dict[int, os.stat_result] = {}
        for directory, name, place, goal in ((source, old, here, there), (target, new, there, here)):
            stat = self._directories.stat(directory, name)
            if stat is None:
                raise NoSuchEntryError(f"there is no {os.fsdecode(name)}")
            child = self._zones.child(place, name)
            assert child is not None
            is_directory = stat_module.S_ISDIR(stat.st_mode)
            if is_directory and self._zones.is_fixed(child):
                raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
            if (is_directory and involves_store) or self._policy.sends(place, name):
                raise UnsupportedError("objects can't be exchanged in one step")
            if is_directory and self._tree.held:
                self._tree.held.check_moved(place.child_path(name))
            check_storable(goal, stat.st_mode)
            before[stat.st_ino] = stat
            pairs.append((directory, name, self._nodes.local(directory, name, stat.st_ino, stat.st_mode)))
        note = b"%d %d" % (pairs[0][2].backing, pairs[1][2].backing)
        if attempt.resent and self._records.noted(attempt.number) not in (None, note):
            return  # already exchanged
        self._records.note(attempt.number, note)
        follow = partial(self._follow, pairs, before)
        self._rename(source, old, target, new, before, then=follow)
        follow()

    def _follow(self, pairs: list[tuple[Node, bytes, Node]], before: Mapping[int, os.stat_result]) -> None:
        """Update nodes and entries of two names and their nodes, whose attributes were ``before``, by inode number."""
        (first_dir, first_name, first), (second_dir, second_name, second) = pairs
        for node, lost, won in ((first, pairs[0], pairs[1]), (second, pairs[1], pairs[0])):
            self._nodes.drop_name(node, lost[0], lost[1])
            self._nodes.add_name(node, won[0], won[1])
        self._directories.renamed()
        for directory, name in ((first_dir, first_name), (second_dir, second_name)):
            after = self._directories.stat(directory, name)
            if after is not None and after.st_ino in before:
                self._updates.refresh(before[after.st_ino], after)

    def _rename(
        self, source: Node, old: bytes, target: Node, new: bytes, inodes: Iterable[int], then: Callable[[], None]
    ) -> None:
        source_fd, target_fd = self._directories.descriptor(source), self._directories.descriptor(target)
        hot = [opened for opened in map(self._hot.of, inodes) if opened is not None]
        if not hot:
            rename_with_flags(source_fd, old, target_fd, new, RENAME_EXCHANGE)
        elif source is target:
            self._hot.rename(hot, source_fd, old, target_fd, new, RENAME_EXCHANGE, then=then)
        else:
            raise FileBusyError("an open file can't be exchanged across directories: close it first")
