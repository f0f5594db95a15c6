"""Files that are open while their bytes still arrive: waiting for some of them, or for all."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from holdfast.errors import NoSuchEntryError, ObjectChangedError, ObjectMissingError, StaleNodeError
from holdfast.fs.file_io.cache_miss import TRIES, CacheMiss, restless
from holdfast.fs.inodes.invalidation import Invalidation
from holdfast.fs.inodes.locks import NodeLocks
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.telemetry import EventLog
from holdfast.transfer import PartialFetch


class ArrivingFiles:
    """Waits. The caller holds no lock of the node: when the object is replaced meanwhile, it is fetched anew here."""

    def __init__(self, misses: CacheMiss, locks: NodeLocks, invalidation: Invalidation, events: EventLog) -> None:
        self._misses = misses
        self._locks = locks
        self._invalidation = invalidation
        self._events = events

    async def wait_for(self, opened: OpenFile, start: int, end: int) -> None:
        """Return when the bytes ``start`` to ``end`` may be read. Raises what ended the fetch (``HoldfastError``)."""
        await self._wait(opened, lambda arrival: arrival.wait_for(start, end))

    async def wait_whole(self, opened: OpenFile) -> None:
        """Return when all bytes are here, and the file is in its place and has its entry. Raises what ended the fetch."""
        await self._wait(opened, PartialFetch.wait_whole)

    async def _wait(self, opened: OpenFile, wait: Callable[[PartialFetch], Awaitable[None]]) -> None:
        """``wait`` for what is needed of the fetch; of another one, if the object is replaced and nothing was read yet."""
        for _ in range(TRIES):
            arrival = opened.arrival
            if arrival is None:
                return
            try:
                await (wait(arrival) if opened.served or not arrival.outdated else arrival.wait_whole())
            except (ObjectChangedError, ObjectMissingError):
                await self._go_on(opened, arrival)
                self._tell_size(opened, arrival)
                continue
            if arrival.finished and opened.arrival is arrival:
                opened.arrived()
            return
        raise restless(opened.node)

    async def _go_on(self, opened: OpenFile, failed: PartialFetch) -> None:
        """The object was replaced in the store, or removed, while ``opened`` arrived by ``failed``: fetch the new version.

        Raises ``ObjectChangedError`` when there is none, or when some of the old one was read already; the name leads to a
        new node then.
        """
        node = opened.node
        async with self._locks.of(node):
            if opened.arrival is not failed:
                return  # another reader was here first
            if not opened.served:
                try:
                    await self._misses.refresh(node)
                    await self._misses.fetch_again(opened)
                    return
                except (NoSuchEntryError, StaleNodeError):
                    pass  # there is none any more
            if node.is_named:
                self._misses.take_name(node)
            path = os.fsdecode(failed.target.path)
            if not failed.reported:
                failed.reported = True
                self._events.emit("replaced-while-read", path=path)
            raise ObjectChangedError(f"{path} was replaced or removed in the store while it was read; open it again")

    def _tell_size(self, opened: OpenFile, before: PartialFetch) -> None:
        """Let the kernel read to the end of a version that is longer. Of a shorter one it sees the end by itself.

        It would not if it were told: then it does not trust a short read that was under way.
        """
        if opened.arrival is not None and opened.arrival.known.size_bytes > before.known.size_bytes:
            self._invalidation.attributes_changed(opened.node.id)
