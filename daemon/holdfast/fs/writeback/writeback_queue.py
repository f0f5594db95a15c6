"""The writeback queue: files that are durable and marked here, and are sent in the background.

They are the files of ``async`` zones, and those whose send has failed at a close or fsync. A file is sent under the name
that it has when it is sent; if it is gone, nothing is sent. Failed uploads are retried. Each store has a queue of its own:
one that does not answer, or is slow, keeps no file from being sent to another. A file that the store refuses, for its name
for one, is tried more and more rarely, up to every ten minutes, or when somebody asks for it (``hurry``). No crash, power
cut or lost index loses a file from the queue: the mark is on the file itself (``store.file_notes``).

The writer of a file whose send failed was told so, and may write it again or elsewhere. So its file is sent only while it is
as it was then, and replaces only the version of the object that it was made from.
"""

from __future__ import annotations

import os
import stat as stat_module
from collections import OrderedDict, defaultdict

import trio

from holdfast.errors import (
    FileBusyError,
    HoldfastError,
    HollowFileError,
    LostBytesError,
    NameNotStorableError,
    RemoteError,
    WriteOnceError,
)
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import path_of
from holdfast.fs.writeback.publisher import Publisher, Sent
from holdfast.index import EntryState
from holdfast.store import (
    holds_for,
    is_unsent,
    mark_not_accepted,
    mark_unsent,
    stamp_of,
    unmark_unsent,
    unsent_mark,
    was_not_accepted,
)
from holdfast.system.file_id import FileId, file_stat
from holdfast.transfer import IN_BACKGROUND, check_can_be_sent
from holdfast.transfer.due_times import DueTimes

_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 600.0
_DOUBLINGS = 10
_MOST_AT_ONCE = 1000
"""The number of files that are queued in one step of the event loop: two milliseconds."""


class WritebackQueue:
    """Paths of the files to send, oldest first, by store. ``run`` sends them."""

    def __init__(self, base: Foundation, publisher: Publisher) -> None:
        parts = base.parts
        self._policy, self._nodes, self._copies, self._hot = base.policy, base.nodes, base.copies, base.hot
        self._losses = base.losses
        self._tree, self._entries, self._events = parts.store.tree, parts.index.entries, parts.events
        self._publisher = publisher
        self._paths: defaultdict[str | None, OrderedDict[bytes, None]] = defaultdict(OrderedDict)
        """The paths that wait, by the name of the store; None: one that is not configured."""
        self._due = DueTimes()
        """The trio time of the next try, for the files whose last try failed."""
        self._refusals: dict[bytes, int] = {}
        """The number of times in a row that the store has refused a file, although it works, by path."""
        self._problems: dict[bytes, str] = {}
        """The reason why the last try of each of those failed."""
        self._under_way: dict[str | None, bytes] = {}
        """The path of the file that is being sent, by store."""
        self._changed = trio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._paths.values())) + len(self._due)

    def holds(self, path: bytes) -> bool:
        """Say whether the file at ``path`` is queued, or being sent."""
        store = self._store_of(path)
        return path in self._paths[store] or path in self._due or path == self._under_way.get(store)

    def problem(self, path: bytes) -> str | None:
        """Return why the last try to send the file at ``path`` failed; None if it has not."""
        return self._problems.get(path)

    def hurry(self, path: bytes) -> None:
        """Send the file at ``path`` before all others, if it is queued."""
        paths = self._paths[self._store_of(path)]
        if path in paths or path in self._due:
            self.add(path)
            paths.move_to_end(path, last=False)

    async def keep(self, fd: int) -> None:
        """Make the bytes behind ``fd`` durable on this disk and mark them unsent.

        Raises ``OSError`` and ``LostBytesError``, and ``HollowFileError`` for bytes that can't be sent.
        """
        check_can_be_sent(fd)
        await self._hot.settle(file_stat(fd).st_ino)
        mark_unsent(fd, self._hot.set_attribute)
        await self._losses.sync(fd)

    async def keep_named(self, fd: int, path: bytes) -> None:
        """Queue the file behind ``fd``, which ``keep`` has marked, for ``path`` too, a name that it got later.

        An upload that has begun under its other names does not remove the new mark. Raises ``OSError`` and
        ``LostBytesError``.
        """
        try:
            await self._hot.settle(file_stat(fd).st_ino)
            was_kept = is_unsent(fd)
            mark_unsent(fd, self._hot.set_attribute)
        finally:
            self.add(path)  # it may still have the mark of ``keep``
        if not was_kept:
            await self._losses.sync(fd)

    async def keep_not_accepted(self, fd: int, paths: list[bytes]) -> None:
        """Queue a file whose send under ``paths`` has failed, unless it is being written to.

        Raises ``OSError``, ``LostBytesError`` and ``FileBusyError``.
        """
        mark = unsent_mark(fd)
        if mark is not None and not was_not_accepted(mark):
            return  # an earlier close was answered: it is queued
        before = stamp_of(file_stat(fd))
        await self._losses.sync(fd)
        if stamp_of(file_stat(fd)) == before:
            try:
                mark_not_accepted(fd, self._hot.set_attribute)
            finally:  # where the file is held up, it gets the mark as soon as it is free
                for path in paths:
                    self._try_again(path)
                self._wake()

    def add(self, path: bytes) -> None:
        """Queue the file at ``path``."""
        self._due.discard(path)
        self._paths[self._store_of(path)][path] = None
        self._wake()

    def _try_again(self, path: bytes) -> None:
        doublings = min(self._refusals.get(path, 1) - 1, _DOUBLINGS)
        pause = min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2.0**doublings)
        self._due.put(path, trio.current_time() + pause)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Send the files of an earlier run, then all that are queued, until cancelled."""
        IN_BACKGROUND.set(True)
        for number, path in enumerate(await trio.to_thread.run_sync(self._left_over), 1):
            self.add(path)
            if number % _MOST_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._changed
                for store in [store for store, paths in self._paths.items() if paths and store not in self._under_way]:
                    self._under_way[store] = next(iter(self._paths[store]))
                    nursery.start_soon(self._send_all, store)
                with trio.move_on_at(self._due.next()):
                    await changed.wait()
                for path in self._due.take(trio.current_time(), _MOST_AT_ONCE):
                    self.add(path)

    async def _send_all(self, store: str | None) -> None:
        """Send the files of one store, one after the other, until none is left."""
        paths = self._paths[store]
        while paths:
            path = self._under_way[store] = next(iter(paths))
            del paths[path]
            self._problems.pop(path, None)
            if await self._send(path):
                self._refusals.pop(path, None)
            else:
                self._try_again(path)
        del self._under_way[store]
        self._wake()

    async def _send(self, path: bytes) -> bool:
        """Send one file; False when it must be tried again."""
        try:
            if not stat_module.S_ISREG(self._tree.stat(path).st_mode):
                return True  # the name leads to another file now
            fd = self._tree.open_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as problem:
            return self._later(path, problem)
        try:
            if self._hot.is_held_up(file_stat(fd).st_ino):
                return self._later(path, FileBusyError("a process holds the lock of the file"))
            mark = unsent_mark(fd)
            return mark is None or not holds_for(mark, fd) or await self._send_marked(path, fd, mark)
        except (HollowFileError, LostBytesError) as problem:
            self._later(path, problem)
            return True  # the next close after a change asks again
        except (HoldfastError, OSError) as problem:
            return self._later(path, problem)
        finally:
            os.close(fd)

    def _give_up(self, path: bytes, fd: int, problem: WriteOnceError) -> None:
        """Keep these bytes aside, because another node has stored an object under the name since."""
        stat = file_stat(fd)
        if stat.st_nlink == 1:
            self._copies.quarantine(path, stat.st_ino, {"why": f"a send failed, and meanwhile {problem}"})
        else:
            self._copies.drop(path, stat.st_ino)

    def _later(self, path: bytes, problem: Exception) -> bool:
        self._problems[path] = str(problem)
        if isinstance(problem, NameNotStorableError) or (isinstance(problem, RemoteError) and not problem.of_store):
            self._refusals[path] = self._refusals.get(path, 0) + 1
        self._events.emit("send-delayed", path=os.fsdecode(path), problem=str(problem))
        return False

    async def _send_marked(self, path: bytes, fd: int, mark: bytes) -> bool:
        """Send a file under all its names. The mark is removed once the store has the bytes under each of them.

        Names of a store that is not configured stay marked, for a daemon that has the store.
        """
        inode = file_stat(fd).st_ino
        names = self._names_of(inode, path)
        reachable = [name for name in names if self._store_of(name) is not None]
        sents = []
        for name in reachable:
            try:
                sent = await self._send_as(name, fd, inode, if_unchanged=was_not_accepted(mark))
            except WriteOnceError as problem:
                if self._is_open(inode):
                    raise
                self._give_up(name, fd, problem)
            else:
                sents += [sent] if sent is not None else []
        if not sents:
            return True
        stable = all(sent.stable for sent in sents)
        all_sent = stable and reachable == names
        # Unless it got another name or other bytes meanwhile.
        others_unsent = not (all_sent and unmark_unsent(fd, mark, self._hot.remove_attribute))
        self._publisher.record(sents, file_stat(fd), self._entries.get(inode), others_unsent=others_unsent)
        return stable

    def _is_open(self, inode: FileId) -> bool:
        node = self._nodes.of_backing(inode)
        return node is not None and node.opened is not None

    def _store_of(self, path: bytes) -> str | None:
        """Return the name of the store that the file at ``path`` is sent to; None if that is not configured."""
        name = self._policy.of_path(path)
        return name.zone.remote if name is not None else None

    async def _send_as(self, path: bytes, fd: int, inode: FileId, *, if_unchanged: bool) -> Sent | None:
        name = self._policy.of_path(path)
        assert name is not None
        entry = self._entries.get(inode)
        known = entry.name_at(path) if entry is not None else None
        return await self._publisher.send_named(
            fd,
            name,
            create_only=if_unchanged,
            is_named=lambda: self._tree.inode(path) == inode,
            replaces=known.etag if known is not None else "",
        )

    def _names_of(self, inode: FileId, path: bytes) -> list[bytes]:
        """Return ``path`` and the other known names of the file that are sent."""
        node, entry = self._nodes.of_backing(inode), self._entries.get(inode)
        paths = {path: None}
        for parent, name in node.names() if node is not None else []:
            directory = path_of(parent)
            if directory is not None and self._may_be_sent(other := b"%s/%s" % (directory, name)):
                paths[other] = None
        for cached in entry.names if entry is not None else []:
            paths[cached.path] = None
        return [name for name in paths if self._tree.inode(name) == inode]

    def _may_be_sent(self, path: bytes) -> bool:
        """Say whether a file at this path is sent; of a store that is not configured nobody knows."""
        name = self._policy.of_path(path)
        return name is None or name.sends

    def _left_over(self) -> list[bytes]:
        dirty = [entry for _, entry in self._entries.scan({EntryState.DIRTY, EntryState.OPEN})]
        return [path for entry in dirty for path in (entry.path, *(name.path for name in entry.names)) if path]
