"""Deletions that the store is still to be told of: held back for a moment, then sent in bulk.

An unlink answers when the deletion is noted in the index. The store hears of it after a short delay, together with its
neighbours: one request for up to a thousand names, and none at all for a name that is put again meanwhile. A name that is
to be deleted does not exist for this node. The note survives the daemon; after a power cut a deletion that was not waited
for (fsync of the directory) may come undone.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from holdfast.errors import RemoteError
from holdfast.index import DirectoryMarks
from holdfast.telemetry import EventLog
from holdfast.transfer.access import RemoteAccess

_LARGEST_BATCH = 1000


class Deletions:
    """The pending deletions of one store; ``key_of`` gives the object key of a tree path."""

    def __init__(
        self,
        access: RemoteAccess,
        marks: DirectoryMarks,
        key_of: Callable[[bytes], str],
        delay_seconds: float,
        events: EventLog,
    ) -> None:
        self._access = access
        self._marks = marks
        self._key_of = key_of
        self._delay_seconds = delay_seconds
        self._events = events
        self._due: dict[bytes, float] = {}
        self._in_flight: dict[bytes, trio.Event] = {}
        self._changed = trio.Event()

    def __len__(self) -> int:
        return len(self._due) + len(self._in_flight)

    def restore(self, path: bytes) -> None:
        """Take up a deletion that an earlier run noted."""
        self._due[path] = trio.current_time()

    def schedule(self, path: bytes) -> None:
        """Note that the object at ``path`` is gone."""
        self._marks.mark_deleted(path)
        self._due[path] = trio.current_time() + self._delay_seconds
        self._wake()

    def pending(self, path: bytes) -> bool:
        """Say whether the object at ``path`` is gone for this node, whatever the store still shows."""
        return path in self._due or path in self._in_flight

    def paths(self) -> list[bytes]:
        """Return all paths whose objects are still to be deleted."""
        return [*self._due, *self._in_flight]

    async def settle(self, path: bytes, *, replace: bool) -> None:
        """Return when no deletion of ``path`` can hit an object that is stored from now on.

        With ``replace`` a deletion that is still held back is dropped, because the coming PUT replaces the object anyway;
        otherwise it is sent first.
        """
        if replace and self._due.pop(path, None) is not None:
            self._marks.clear_deleted(path)
        await self.flush([path])

    async def flush(self, paths: list[bytes] | None = None) -> None:
        """Return when the store has been told of ``paths`` (None: of all that is pending now)."""
        waited_for = self.paths() if paths is None else paths
        for path in waited_for:
            if path in self._due:
                self._due[path] = trio.current_time()
        self._wake()
        for path in waited_for:
            while self.pending(path):
                event = self._in_flight.get(path, self._changed)
                await event.wait()

    async def run(self) -> None:
        """Send deletions as they fall due, until cancelled."""
        while True:
            if not self._due:
                await self._changed.wait()
                continue
            wait = min(self._due.values()) - trio.current_time()
            if wait > 0:
                with trio.move_on_after(wait):
                    await self._changed.wait()
                continue
            await self._send()

    async def _send(self) -> None:
        now = trio.current_time()
        batch = [path for path, due in self._due.items() if due <= now][:_LARGEST_BATCH]
        done = trio.Event()
        for path in batch:
            del self._due[path]
            self._in_flight[path] = done
        try:
            await self._access.delete([self._key_of(path) for path in batch])
        except RemoteError as problem:
            self._events.emit("delete-delayed", store=self._access.name, objects=len(batch), problem=str(problem))
            for path in batch:
                self._due[path] = now + 10 * max(1.0, self._delay_seconds)
        else:
            for path in batch:
                self._marks.clear_deleted(path)
        finally:
            for path in batch:
                del self._in_flight[path]
            done.set()
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
