"""The writeback queue: files of ``async`` zones that are durable and marked here, and are sent in the background.

A file is sent under the name that it has when it is sent; if it is gone, nothing is sent. Failed uploads are retried. No
crash, power cut or lost index loses a file from the queue: the mark is on the file itself (``store.unsent_marks``).
"""

from __future__ import annotations

import os
import stat as stat_module
from collections import OrderedDict

import trio

from holdfast.config import Durability
from holdfast.errors import HoldfastError, HollowFileError
from holdfast.fs.inodes.name_policy import NamePolicy
from holdfast.fs.inodes.node import path_of
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.writeback.publisher import Publisher, Sent
from holdfast.index import Entries, EntryState
from holdfast.store import Tree, is_unsent, mark_unsent, unmark_unsent, unsent_mark
from holdfast.telemetry import EventLog
from holdfast.transfer import check_can_be_sent
from holdfast.zones import ZoneMap, ZonePath

_PAUSE_SECONDS = 5.0


class WritebackQueue:
    """Paths of the files to send, oldest first. ``run`` sends them."""

    def __init__(
        self,
        publisher: Publisher,
        policy: NamePolicy,
        nodes: NodeTable,
        zones: ZoneMap,
        tree: Tree,
        entries: Entries,
        events: EventLog,
    ) -> None:
        self._publisher = publisher
        self._policy = policy
        self._nodes = nodes
        self._zones = zones
        self._tree = tree
        self._entries = entries
        self._events = events
        self._paths: OrderedDict[bytes, None] = OrderedDict()
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._paths)

    def takes(self, place: ZonePath) -> bool:
        """Say whether files written at ``place`` are sent later."""
        return place.zone.durability is Durability.ASYNC

    async def keep(self, fd: int) -> None:
        """Make the bytes behind ``fd`` durable on this disk and mark them unsent.

        Raises ``OSError``, and ``HollowFileError`` for bytes that can't be sent.
        """
        check_can_be_sent(fd)
        mark_unsent(fd)
        await trio.to_thread.run_sync(os.fsync, fd)

    async def keep_named(self, fd: int, path: bytes) -> None:
        """Queue the file behind ``fd``, which ``keep`` has marked, for ``path`` too, a name that it got later.

        An upload that has begun under its other names does not remove the new mark. Raises ``OSError``.
        """
        was_kept = is_unsent(fd)
        mark_unsent(fd)
        self.add(path)
        if not was_kept:
            await trio.to_thread.run_sync(os.fsync, fd)

    def add(self, path: bytes) -> None:
        """Queue the file at ``path``."""
        self._paths[path] = None
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Send the files of an earlier run, then all that are queued, until cancelled."""
        for path in await trio.to_thread.run_sync(self._left_over):
            self.add(path)
        while True:
            changed = self._changed
            while self._paths:
                path = next(iter(self._paths))
                del self._paths[path]
                if not await self._send(path):
                    self._paths[path] = None
                    await trio.sleep(_PAUSE_SECONDS)
            await changed.wait()

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
            mark = unsent_mark(fd)
            return mark is None or await self._send_marked(path, fd, mark)
        except HollowFileError as problem:
            self._later(path, problem)
            return True  # the next close after a change asks again
        except (HoldfastError, OSError) as problem:
            return self._later(path, problem)
        finally:
            os.close(fd)

    def _later(self, path: bytes, problem: Exception) -> bool:
        self._events.emit("send-delayed", path=os.fsdecode(path), problem=str(problem))
        return False

    async def _send_marked(self, path: bytes, fd: int, mark: bytes) -> bool:
        """Send a file under all its names. The mark is removed once the store has the bytes under each of them.

        Names of a store that is not configured stay marked, for a daemon that has the store.
        """
        inode = os.fstat(fd).st_ino
        names = self._names_of(inode, path)
        reachable = [name for name in names if self._has_store(name)]
        sents = [sent for name in reachable if (sent := await self._send_as(name, fd, inode)) is not None]
        if not sents:
            return True
        stable = all(sent.stable for sent in sents)
        all_sent = stable and reachable == names
        others_unsent = not (all_sent and unmark_unsent(fd, mark))  # or it got another name or other bytes meanwhile
        self._publisher.record(sents, os.fstat(fd), self._entries.get(inode), others_unsent=others_unsent)
        return stable

    def _has_store(self, path: bytes) -> bool:
        place = self._zones.place_of(path.rpartition(b"/")[0])
        return place is not None and place.zone.remote is not None

    async def _send_as(self, path: bytes, fd: int, inode: int) -> Sent | None:
        parent, _, name = path.rpartition(b"/")
        place = self._zones.place_of(parent)
        assert place is not None
        return await self._publisher.send_named(
            fd, place, name, create_only=False, is_named=lambda: self._tree.inode(path) == inode
        )

    def _names_of(self, inode: int, path: bytes) -> list[bytes]:
        """Return ``path`` and the other known names of the file that are sent."""
        node, entry = self._nodes.of_backing(inode), self._entries.get(inode)
        paths = {path: None}
        for parent, name in node.names() if node is not None else []:
            directory = path_of(parent)
            if directory is not None and self._may_be_sent(directory, name):
                paths[b"%s/%s" % (directory, name)] = None
        for cached in entry.names if entry is not None else []:
            paths[cached.path] = None
        return [name for name in paths if self._tree.inode(name) == inode]

    def _may_be_sent(self, directory: bytes, name: bytes) -> bool:
        """Say whether a file at this name is sent; of a store that is not configured nobody knows."""
        place = self._zones.place_of(directory)
        return place is None or self._policy.sends(place, name)

    def _left_over(self) -> list[bytes]:
        dirty = [entry for _, entry in self._entries.scan() if entry.state is EntryState.DIRTY]
        return [path for entry in dirty for path in (entry.path, *(name.path for name in entry.names)) if path]
