"""Locks by node or path that exist only while they are held.

An uncontended lock is taken without a round of the event loop, which would cost as much as a whole open. So acquiring is a
checkpoint only if it has to wait. Memory use follows the number of holders, not the number of nodes.

Lock order: a node's lock first, then a path's.
"""

from __future__ import annotations

import trio

from holdfast.fs.inodes.node import Node
from holdfast.system.waits import before_waiting
from holdfast.telemetry import waiting_for

Key = Node | bytes
"""A node, or a path in the tree."""


class NodeLocks:
    """All locks that are held. A released lock goes to the task that has waited longest."""

    def __init__(self) -> None:
        self._held: dict[Key, trio.lowlevel.ParkingLot | None] = {}
        """The waiting tasks of each lock; None until the first one waits."""

    def of(self, key: Key) -> NodeLock:
        """Return the lock of ``key``, for one ``async with``. The most frequent requests use ``take`` and ``wait``."""
        return NodeLock(self, key)

    def take(self, key: Key) -> bool:
        """Take the lock of ``key``, until ``release``, unless it is held; return whether it was free."""
        if key in self._held:
            return False
        self._held[key] = None
        return True

    async def wait(self, key: Key) -> None:
        """Take the lock of ``key``, until ``release``, after those who have it now. If cancelled, it is not taken."""
        await before_waiting()
        if self.take(key):
            return
        waiting = self._held[key]
        if waiting is None:
            waiting = self._held[key] = trio.lowlevel.ParkingLot()
        with waiting_for("lock"):
            await waiting.park()

    def release(self, key: Key) -> None:
        """Pass the lock of ``key`` on to the task that has waited longest, if there is one."""
        waiting = self._held[key]
        if waiting:
            waiting.unpark()
        else:
            del self._held[key]

    def is_held(self, key: Key) -> bool:
        """Say whether the lock of ``key`` is held."""
        return key in self._held


class NodeLock:
    """The lock of one node or path."""

    __slots__ = ("_key", "_locks")

    def __init__(self, locks: NodeLocks, key: Key) -> None:
        self._locks = locks
        self._key = key

    async def __aenter__(self) -> None:
        if not self._locks.take(self._key):
            await self._locks.wait(self._key)

    async def __aexit__(self, *problem: object) -> None:
        self._locks.release(self._key)
