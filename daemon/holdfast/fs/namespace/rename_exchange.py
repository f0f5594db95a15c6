"""renameat2(2) with RENAME_EXCHANGE, for two names that are not sent."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from holdfast.errors import FileBusyError, NoSuchEntryError, UnsupportedError, ZoneRootBusyError
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.name_policy import Name, check_storable
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.replay import Attempt
from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from holdfast.system.file_id import FileId, FileStat


class Exchange:
    """Exchanges names."""

    def __init__(self, base: Foundation) -> None:
        parts = base.parts
        self._directories, self._nodes, self._hot = base.directories, base.nodes, base.hot
        self._zones, self._records, self._tree = parts.zones, parts.session.records, parts.store.tree
        self._entries = parts.index.entries

    async def settle(self, one: Name, other: Name) -> None:
        """Wait for the locks of both files, if users can hold them."""
        for name in (one, other):
            stat = self._directories.stat(name.directory, name.name)
            if stat is not None:
                await self._hot.settle(stat.st_ino)

    def exchange(self, one: Name, other: Name, attempt: Attempt) -> None:
        """Exchange two names.

        Afterwards the state does not show whether it was done. So the inodes of both names are recorded first.
        """
        involves_store = any(name.zone.is_store or name.zone.sends for name in (one, other))
        pairs = []
        before: dict[FileId, FileStat] = {}
        for name, goal in ((one, other), (other, one)):
            stat = self._directories.stat(name.directory, name.name)
            if stat is None:
                raise NoSuchEntryError(f"there is no {os.fsdecode(name.name)}")
            child = self._zones.child(name.place, name.name)
            assert child is not None
            is_directory = stat_module.S_ISDIR(stat.st_mode)
            if is_directory and self._zones.is_fixed(child):
                raise ZoneRootBusyError("the root of a zone or a working directory can't be renamed")
            if (is_directory and involves_store) or name.sends:
                raise UnsupportedError("objects can't be exchanged in one step")
            if is_directory and self._tree.held.calls:
                self._tree.held.check_moved(name.path)
            check_storable(goal.zone, stat.st_mode)
            before[stat.st_ino] = stat
            pairs.append((name, self._nodes.local(name.directory, name.name, stat.st_ino, stat.st_mode)))
        note = b"%d %d" % (pairs[0][1].backing, pairs[1][1].backing)
        if attempt.resent and self._records.noted(attempt.number) not in (None, note):
            return  # already exchanged
        self._records.note(attempt.number, note)
        follow = partial(self._follow, pairs, before)
        self._rename(one, other, before, then=follow)
        follow()

    def _follow(self, pairs: list[tuple[Name, Node]], before: Mapping[FileId, FileStat]) -> None:
        """Update nodes and entries of two names and their nodes, whose attributes were ``before``, by inode number."""
        (one, first), (other, second) = pairs
        for node, lost, won in ((first, one, other), (second, other, one)):
            self._nodes.drop_name(node, lost.directory, lost.name)
            self._nodes.add_name(node, won.directory, won.name)
        self._directories.renamed()
        for name in (one, other):
            after = self._directories.stat(name.directory, name.name)
            if after is not None and after.st_ino in before:
                self._entries.refresh(before[after.st_ino], after)

    def _rename(self, one: Name, other: Name, inodes: Iterable[FileId], then: Callable[[], None]) -> None:
        one_fd, other_fd = self._directories.descriptor(one.directory), self._directories.descriptor(other.directory)
        hot = [opened for opened in map(self._hot.of, inodes) if opened is not None]
        if not hot:
            rename_with_flags(one_fd, one.name, other_fd, other.name, RENAME_EXCHANGE)
        elif one.directory is other.directory:
            self._hot.rename(hot, one_fd, one.name, other_fd, other.name, RENAME_EXCHANGE, then=then)
        else:
            raise FileBusyError("an open file can't be exchanged across directories: close it first")
