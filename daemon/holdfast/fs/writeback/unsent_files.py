"""The files whose bytes no store has yet: listing them, and insisting on sending them."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import trio

from holdfast.errors import HoldfastError, LostBytesError
from holdfast.fs.foundation import Foundation
from holdfast.fs.writeback.writeback_queue import WritebackQueue
from holdfast.index import UNSENT, Entry, EntryState
from holdfast.store import is_marked_lost
from holdfast.system.file_id import FileId
from holdfast.zones import is_at_or_below

_PAUSE_SECONDS = 0.05
_UNDER_WAY = "it is being sent, which takes longer than the time given"
_OPEN = "a process has it open for writing, and its close sends it"
_CUT_OFF = (
    "it was cut off while it was written, so nobody knows whether it is whole: write it anew, or send it as it is by "
    "opening and closing it (: >>FILE), or remove it"
)


class Unsent(NamedTuple):
    """The files that no store has: their number, their bytes, and the last change of the oldest (ns since the epoch)."""

    files: int
    size_bytes: int
    oldest_ns: int | None


class UnsentFiles:
    """Files in zones that send, whose bytes are only on this node, and deletions that are only noted here."""

    def __init__(self, base: Foundation, queue: WritebackQueue) -> None:
        parts = base.parts
        self._nodes, self._view, self._entries = base.nodes, base.view, parts.index.entries
        self._zones, self._tree = parts.zones, parts.store.tree
        self._queue = queue

    def below(self, wanted: bytes) -> list[bytes]:
        """Return the paths of the files at or below ``wanted`` (``b""``: all).

        Reads the whole index, so call it in a thread.
        """
        found = (entry.path for _, entry in self._entries.scan(UNSENT))
        return [path for path in found if is_at_or_below(path, wanted) and self._is_to_be_sent(path)]

    def totals(self) -> Unsent:
        """Return how much is unsent. Reads the whole index, so call it in a thread."""
        files, size_bytes = 0, 0
        oldest_ns: int | None = None
        for _, entry in self._entries.scan(UNSENT):
            if self._is_to_be_sent(entry.path):
                with suppress(OSError):  # it was sent or removed meanwhile
                    stat = self._tree.stat(entry.path)  # the entry is as old as the first change
                    files, size_bytes = files + 1, size_bytes + stat.st_size
                    oldest_ns = min(oldest_ns or stat.st_ctime_ns, stat.st_ctime_ns)
        return Unsent(files, size_bytes, oldest_ns)

    async def send(self, path: bytes, deadline: float, *, waits_for_writers: bool) -> str | None:
        """Return once the store has the file at ``path``, or its name is gone; else return why not.

        That is the case at ``deadline`` (a trio time), and before that if nobody is going to send it.
        With ``waits_for_writers``, processes that have it open for writing are expected to close it.
        """
        self._queue.hurry(path)
        while True:
            inode = self._tree.inode(path)
            entry = self._entries.get(inode) if inode else None
            if entry is None or not entry.is_unsent:
                return None
            problem = self._problem(path, inode, entry)
            waits = problem is None or (waits_for_writers and problem is _OPEN)
            if not waits or trio.current_time() >= deadline:
                return self._queue.problem(path) or problem or _UNDER_WAY
            await trio.sleep(_PAUSE_SECONDS)

    async def send_deletions(self, wanted: bytes, deadline: float) -> list[tuple[bytes, str]]:
        """Carry out the deletions at or below ``wanted`` that are held back; return those that were not, and why."""
        failed = []
        for deletions in self._view.deletions():
            paths = [path for path in deletions.paths() if is_at_or_below(path, wanted)]
            problem = _UNDER_WAY
            with trio.move_on_at(deadline):
                try:
                    await deletions.flush(paths)
                except HoldfastError as error:
                    problem = str(error)
            left = set(deletions.paths())
            failed += [(path, f"the deletion of its object was not sent: {problem}") for path in paths if path in left]
        return failed

    def _problem(self, path: bytes, inode: FileId, entry: Entry) -> str | None:
        """Return why nobody is sending the file now; None if somebody is."""
        if entry.state is EntryState.UPLOADING or self._queue.holds(path):
            return None
        node = self._nodes.of_backing(inode)
        if node is not None and node.opened is not None:
            return _OPEN
        return str(LostBytesError()) if is_marked_lost(self._tree.system_path(path)) else _CUT_OFF

    def _is_to_be_sent(self, path: bytes) -> bool:
        place = self._zones.place_of(path.rpartition(b"/")[0])
        return place is None or place.zone.sends
