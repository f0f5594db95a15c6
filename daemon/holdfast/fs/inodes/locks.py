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
        """Return the lock of ``key``, for one ``async with``."""
        return NodeLock(self._held, key)

    def is_held(self, key: Key) -> bool:
        """Say whether the lock of ``key`` is held."""
        return key in self._held


class NodeLock:
    """The lock of one node or path. If cancelled while waiting, it is not acquired."""

    __slots__ = ("_held", "_node")

    def __init__(self, held: dict[Key, trio.lowlevel.ParkingLot | None], node: Key) -> None:
        self._held = held
        self._node = node

    async def __aenter__(self) -> None:
        held, node = self._held, self._node
        if node in held:
            await before_waiting()
        if node not in held:
            held[node] = None
            return
        waiting = held[node]
        if waiting is None:
            waiting = held[node] = trio.lowlevel.ParkingLot()
        with waiting_for("lock"):
            await waiting.park()

    async def __aexit__(self, *problem: object) -> None:
        waiting = self._held[self._node]
        if waiting:
            waiting.unpark()
        else:
            del self._held[self._node]
