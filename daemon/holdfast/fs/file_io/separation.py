"""Separates files that have a name in a store and one outside of it: before such a file is written, its objects' names go.

Spark links the immutable files of a checkpoint into a working directory and back, which saves reading and writing them. Both
names lead to one file and one node, so OPEN does not tell by which of them the file was found, and a write would change the
object and the private file alike. So the copies of the objects are dropped, as by an eviction: the store has them. The open
is answered with ESTALE, and the kernel looks the name up again. The private name leads to the file, which now has no other
kind of name; the object's name leads to the object, which is fetched, at once if it is pinned.

Where that can't be, the open fails with EBUSY: the file is open, or the store does not have the object yet.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import trio

from holdfast.capacity import RELEASE_SECONDS
from holdfast.errors import FileBusyError, StaleNodeError
from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.index import EntryState
from holdfast.system.file_id import FileId, FileStat, listed_ids
from holdfast.system.waits import before_waiting

_TRIES = 20
_LOOKING_SECONDS = 10.0
"""The time after a separation by which whoever had found the node before has opened it."""
_ANY_THREAD = 0
"""The thread number of all threads that are not in the daemon's process namespace."""
_ANY_LOOKING_SECONDS = 0.02
"""The same time for these threads, which can't be told apart: far longer than from the reply to a lookup to the open, which
is one system call."""


class _Recent(NamedTuple):
    until: float
    any_until: float
    told: set[int]
    """The threads that were told to look its name up again."""


class Separation:
    """Keeps writes through private names from objects, and writes of objects from private files."""

    def __init__(self, base: Foundation, prefetcher: Prefetcher) -> None:
        self._policy, self._directories, self._nodes, self._locks = base.policy, base.directories, base.nodes, base.locks
        self._index, self._tree, self._copies = base.parts.index, base.parts.store.tree, base.copies
        self._invalidation = base.invalidation
        self._prefetcher = prefetcher
        self._recent: dict[Node, _Recent] = {}
        """The nodes that were separated a moment ago. Another file may have the id of one by now."""

    def concerns(self, node: Node, *, changes: bool) -> bool:
        """Say whether ``settle`` must be called first. A file with one name, which nearly all are, takes one stat."""
        return node in self._recent or (changes and self._may_have_both(node))

    async def settle(self, node: Node, thread: int, *, changes: bool) -> None:
        """Return if a file may be opened as it is, for ``changes`` or for reading. Raises ``StaleNodeError`` if not."""
        if changes:
            await self.separate(node, thread)
        else:
            await before_waiting()
            await self.check_found_anew(node, thread)

    def _may_have_both(self, node: Node) -> bool:
        """Say whether the file may have names of objects, and names outside of their stores."""
        stat = self._stat(node)
        return stat is not None and stat.st_nlink > 1 and 0 < len(self._object_names(node, stat)) < stat.st_nlink

    async def check_found_anew(self, node: Node, thread: int, arrived: float | None = None) -> None:
        """Raise ``StaleNodeError`` to a thread that may have found the file by the object's name before it was separated.

        A thread gets the error once. So does one that has found the file afterwards, which costs it one more lookup. All
        threads without numbers get it whose requests have ``arrived`` (now, if that is not given) in the first moment, and
        at its end: nobody tries a third time.
        """
        recent = self._recent.get(node)
        if recent is None:
            return
        if trio.current_time() > recent.until:
            del self._recent[node]
        elif thread == _ANY_THREAD:
            if (trio.current_time() if arrived is None else arrived) < recent.any_until:
                await trio.sleep_until(recent.any_until)
                raise _look_again()
        elif thread not in recent.told:
            recent.told.add(thread)
            raise _look_again()

    async def separate(self, node: Node, thread: int) -> None:
        """Return if a file may be opened for writing as it is. Raises ``StaleNodeError`` once it was separated."""
        await before_waiting()
        arrived = trio.current_time()
        for _ in range(_TRIES):
            async with self._locks.of(node):
                stat = self._stat(node)
                if stat is None or not await self._has_both(node, stat):
                    await self.check_found_anew(node, thread, arrived)
                    return  # of a file that was linked again since then the separation tells, and no thread is told twice
                if node.opened is None and self._is_stored(node, stat):
                    self._note(node, thread)
                    await self._invalidation.invalidate_now(self._drop_copies(node, stat))
                    self._invalidation.attributes_changed(node.id)
                    await self.check_found_anew(node, thread, arrived)
                    raise _look_again()
            await trio.sleep(RELEASE_SECONDS)
        raise FileBusyError("the file is linked between a store and another directory, and is open, or not yet in the store")

    def _note(self, node: Node, thread: int) -> None:
        now = trio.current_time()
        for old in [each for each, recent in self._recent.items() if now > recent.until]:
            del self._recent[old]
        self._recent[node] = _Recent(now + _LOOKING_SECONDS, now + _ANY_LOOKING_SECONDS, {thread})

    def _stat(self, node: Node) -> FileStat | None:
        if node.backing == 0 or node.parent is None:
            return None
        return self._directories.stat(node.parent, node.name)

    async def _has_both(self, node: Node, stat: FileStat) -> bool:
        """Say whether the file has names of objects, and names outside of their stores.

        Not all names need be known of a node. Temporary ones beside an object's are its writer's.
        """
        objects = self._object_names(node, stat) if stat.st_nlink > 1 else set()
        if not objects:
            return False
        directories = {path.rpartition(b"/")[0] for path in objects}
        return await trio.to_thread.run_sync(self._count_names, directories, stat.st_ino) < stat.st_nlink

    def _count_names(self, directories: set[bytes], inode: FileId) -> int:
        """Return how many names the file has in these directories of the tree, which may be as large as users like."""
        count = 0
        for directory in directories:
            try:
                fd = self._tree.open_directory(directory)
            except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
                continue
            try:
                with os.scandir(b"/proc/self/fd/%d" % fd) as entries:
                    listed_id = listed_ids(fd)
                    count += sum(listed_id(entry) == inode for entry in entries)
            finally:
                os.close(fd)
        return count

    def _object_names(self, node: Node, stat: FileStat) -> set[bytes]:
        """Return the paths in the tree under which the file is, or will become, an object."""
        found = {name.path for name in self._policy.sent_names(node.names())}
        entry = self._index.entries.get(stat.st_ino)
        if entry is not None:
            found |= {name.path for name in entry.names if self._is_object(name.path)}
            if (
                entry.state is not EntryState.CLEAN
                and self._is_object(entry.path)
                and self._tree.inode(entry.path) == stat.st_ino
            ):
                found.add(entry.path)  # not sent yet, or being sent
        return found

    def _is_object(self, path: bytes) -> bool:
        name = self._policy.of_path(path)
        return name is not None and name.sends

    def _is_stored(self, node: Node, stat: FileStat) -> bool:
        """Say whether the store has these bytes under each of the names."""
        entry = self._index.entries.get(stat.st_ino)
        if entry is None or entry.state is not EntryState.CLEAN:
            return False
        return self._object_names(node, stat) <= {name.path for name in entry.names}

    def _drop_copies(self, node: Node, stat: FileStat) -> list[tuple[int, bytes]]:
        """Drop the names of the objects; return them as the kernel knows them, which may know more than the node does."""
        dropped = []
        paths = self._object_names(node, stat)
        for path in paths:
            parent, _, name = path.rpartition(b"/")
            dropped.append((self._nodes.id_of(self._tree.inode(parent)), name))
            self._copies.drop(path, stat.st_ino, same_object=True)
        self._prefetcher.fetch_again(filter(self._index.pins.cover, paths))
        if node.backing != stat.st_ino or not self._policy.has_digest(node):  # what is left is private
            self._index.entries.discard(stat.st_ino)
        return dropped


def _look_again() -> StaleNodeError:
    return StaleNodeError("it was a copy of an object too; look its name up again")
