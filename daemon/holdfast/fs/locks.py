"""Locks by node that exist only while somebody holds them, and cost nothing while nobody else wants them.

A free one is taken without a round of the event loop, which costs as much as a whole open. So taking it is a checkpoint
only when it has to be waited for. There are as many locks as there are holders, not as there are nodes.
"""

from __future__ import annotations

import trio

from holdfast.fs.nodes import Node


class NodeLocks:
    """All locks that are held. One that is let go is handed to who waits longest."""

    def __init__(self) -> None:
        self._held: dict[Node, trio.lowlevel.ParkingLot | None] = {}
        """Who waits for each; None as long as nobody ever did."""

    def of(self, node: Node) -> NodeLock:
        """Return the lock of ``node``, for one ``async with``."""
        return NodeLock(self._held, node)


class NodeLock:
    """The lock of one node. Cancelled while waiting, it is not taken."""

    __slots__ = ("_held", "_node")

    def __init__(self, held: dict[Node, trio.lowlevel.ParkingLot | None], node: Node) -> None:
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
