"""Deletions that the store is still to be told of: held back for a moment, then sent in bulk.

An unlink answers when the deletion is noted in the index. The store hears of it after a short delay, together with its
neighbours: one request for up to a thousand names, and none at all for a name that is put again meanwhile. A name that is
to be deleted does not exist for this node. The note survives the daemon; after a power cut a deletion that was not waited
for (fsync of the directory) may come undone. A deletion that fails is kept and tried again later; who waits for it is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from holdfast.errors import HoldfastError
from holdfast.index import DirectoryMarks
from holdfast.telemetry import EventLog
from holdfast.transfer.access import RemoteAccess

_LARGEST_BATCH = 1000
_RETRY_DELAYS = 10
_SHORTEST_RETRY_SECONDS = 10.0


class _Attempt:
    """The next try to delete one object, or the one under way. A failed try is followed by a new one."""

    __slots__ = ("done", "due", "problem", "under_way")

    def __init__(self, due: float) -> None:
        self.due = due
        self.under_way = False
        self.done = trio.Event()
        self.problem: HoldfastError | None = None


class Deletions:
    """The pending deletions of one store; ``key_of`` gives the object key of a tree path.

    ``deleted`` hears of each key that the store has deleted, before the deletion stops being pending.
    """

    def __init__(
        self,
        access: RemoteAccess,
        marks: DirectoryMarks,
        key_of: Callable[[bytes], str],
        delay_seconds: float,
        events: EventLog,
        deleted: Callable[[str], None],
    ) -> None:
        self._access = access
        self._marks = marks
        self._key_of = key_of
        self._delay_seconds = delay_seconds
        self._events = events
        self._deleted = deleted
        self._pending: dict[bytes, _Attempt] = {}
        self._changed = trio.Event()
        self._sleeps_until = math.inf

    def __len__(self) -> int:
        return len(self._pending)

    def restore(self, path: bytes) -> None:
        """Take up a deletion that an earlier run noted."""
        self._add(path, trio.current_time())

    def schedule(self, path: bytes) -> None:
        """Note that the object at ``path`` is gone."""
        self._marks.mark_deleted(path)
        self._add(path, trio.current_time() + self._delay_seconds)

    def pending(self, path: bytes) -> bool:
        """Say whether the object at ``path`` is gone for this node, whatever the store still shows."""
        return path in self._pending

    def pending_in(self, directory: bytes) -> list[bytes]:
        """Return the names in the tree's directory at ``directory`` whose objects are gone for this node."""
        split = (path.rpartition(b"/") for path in self._pending)
        return [name for parent, _, name in split if parent == directory]

    def paths(self) -> list[bytes]:
        """Return all paths whose objects are still to be deleted."""
        return list(self._pending)

    async def settle(self, path: bytes, *, replace: bool) -> None:
        """Return when no deletion of ``path`` can hit an object that is stored from now on.

        With ``replace`` a deletion that is still held back is dropped, because the coming PUT replaces the object anyway;
        otherwise it is sent first. Raises what the store answers instead of deleting (``RemoteError``); after a refusal
        the object is only to be replaced.
        """
        while (attempt := self._pending.get(path)) is not None:
            if replace and not attempt.under_way:
                self._drop(path, attempt)
                return
            self._hurry([path])
            await attempt.done.wait()
            if attempt.problem is not None and (attempt.problem.transient or not replace):
                raise attempt.problem

    async def flush(self, paths: list[bytes] | None = None) -> None:
        """Return when the store has been told of ``paths`` (None: of all that is pending now).

        Raises what the store answers instead of deleting (``RemoteError``); the deletions stay pending then.
        """
        waited_for = self.paths() if paths is None else paths
        self._hurry(waited_for)
        for path in waited_for:
            await self.settle(path, replace=False)

    async def run(self) -> None:
        """Send deletions as they fall due, until cancelled."""
        while True:
            self._sleeps_until = min((attempt.due for attempt in self._pending.values()), default=math.inf)
            if self._sleeps_until > trio.current_time():
                with trio.move_on_at(self._sleeps_until):
                    await self._changed.wait()
            else:
                await self._send()

    async def _send(self) -> None:
        now = trio.current_time()
        batch = [(path, attempt) for path, attempt in self._pending.items() if attempt.due <= now][:_LARGEST_BATCH]
        for _, attempt in batch:
            attempt.under_way = True
        retry_at = now
        try:
            await self._access.delete([self._key_of(path) for path, _ in batch])
            for path, attempt in batch:
                self._deleted(self._key_of(path))
                self._drop(path, attempt)
        except HoldfastError as problem:
            self._events.emit("delete-delayed", store=self._access.name, objects=len(batch), problem=str(problem))
            retry_at = trio.current_time() + max(_SHORTEST_RETRY_SECONDS, _RETRY_DELAYS * self._delay_seconds)
            for path, attempt in batch:
                if self._pending.get(path) is attempt:
                    attempt.problem = problem
        finally:
            for path, attempt in batch:
                if self._pending.get(path) is attempt:
                    self._pending[path] = _Attempt(retry_at)
                attempt.done.set()

    def _add(self, path: bytes, due: float) -> None:
        self._pending[path] = _Attempt(due)
        if due < self._sleeps_until:  # not at each of many: ``run`` looks at them all when it wakes
            self._wake()

    def _drop(self, path: bytes, attempt: _Attempt) -> None:
        """Forget a deletion, unless the path has a newer one. After an error (``IndexFullError``) it is still pending."""
        if self._pending.get(path) is attempt:
            self._marks.clear_deleted(path)
            del self._pending[path]
        attempt.done.set()

    def _hurry(self, paths: list[bytes]) -> None:
        for path in paths:
            attempt = self._pending.get(path)
            if attempt is not None and not attempt.under_way:
                attempt.due = min(attempt.due, trio.current_time())
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
