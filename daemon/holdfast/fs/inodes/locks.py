"""Locks by node, or by path, that exist only while somebody holds them, and cost nothing while nobody else wants them.

A free one is taken without a round of the event loop, which costs as much as a whole open. So taking it is a checkpoint
only when it has to be waited for. There are as many locks as there are holders, not as there are nodes.

Who holds a node's lock may take a path's, never the other way round.
"""

from __future__ import annotations

import trio

from holdfast.fs.inodes.nodes import Node

Key = Node | bytes
"""What a lock is for: a node, or a path in the tree."""


class NodeLocks:
    """All locks that are held. One that is let go is handed to who waits longest."""

    def __init__(self) -> None:
        self._held: dict[Key, trio.lowlevel.ParkingLot | None] = {}
        """Who waits for each; None as long as nobody ever did."""

    def of(self, key: Key) -> NodeLock:
        """Return the lock of ``key``, for one ``async with``."""
        return NodeLock(self._held, key)


class NodeLock:
    """The lock of one node or path. Cancelled while waiting, it is not taken."""

    __slots__ = ("_held", "_node")

    def __init__(self, held: dict[Key, trio.lowlevel.ParkingLot | None], node: Key) -> None:
        self._held = held
        self._node = node

    def locked(self) -> bool:
        """Say whether anybody holds it."""
        return self._node in self._held

    async def __aenter__(self) -> None:
        held, node = self._held, self._node
        if node not in held:
            held[node] = None
            return
        waiting = held[node]
        if waiting is None:
            waiting = held[node] = trio.lowlevel.ParkingLot()
        await waiting.park()

    async def __aexit__(self, *problem: object) -> None:
        waiting = self._held[self._node]
        if waiting:
            waiting.unpark()
        else:
            del self._held[self._node]
