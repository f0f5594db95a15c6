"""How many requests of one user may wait for a store, a disk or a lock at the same time.

Each takes a task, and its share of the store's requests. Those beyond the limit wait for the user's own earlier ones, in
their order. A request that waits here holds nothing that another could need. Root does not wait.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import AbstractAsyncContextManager

import trio

from holdfast.telemetry import RareEvents

_MOST_WAITING = 1024


class _User:
    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[trio.Event] = deque()


class RequestTurns:
    """Lets ``per_user`` requests of each user run at once."""

    def __init__(self, per_user: int, rare_events: RareEvents) -> None:
        self._per_user = per_user
        self._events = rare_events
        self._users: dict[int, _User] = {}

    def of(self, uid: int) -> AbstractAsyncContextManager[None]:
        """Return a context for one request of a user. Raises ``OSError`` (EAGAIN) on entry if 1,024 wait already."""
        return _ROOTS_TURN if uid == 0 else _Turn(self, uid)

    async def enter(self, uid: int) -> None:
        """Wait for a turn. Does not wait at all if there is one."""
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = _User()
        if user.running < self._per_user:
            user.running += 1
            return
        self._events.emit("limit-reached", uid=uid, what="requests", limit=self._per_user)
        if len(user.waiting) >= _MOST_WAITING:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        turn = trio.Event()
        user.waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.leave(uid)
            else:
                user.waiting.remove(turn)
            raise

    def leave(self, uid: int) -> None:
        """End a turn; the user's next request has it."""
        user = self._users[uid]
        if user.waiting:
            user.waiting.popleft().set()
            return
        user.running -= 1
        if user.running == 0:
            del self._users[uid]


class _Turn:
    __slots__ = ("_turns", "_uid")

    def __init__(self, turns: RequestTurns, uid: int) -> None:
        self._turns = turns
        self._uid = uid

    async def __aenter__(self) -> None:
        await self._turns.enter(self._uid)

    async def __aexit__(self, *problem: object) -> None:
        self._turns.leave(self._uid)


class _RootsTurn:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *problem: object) -> None:
        pass


_ROOTS_TURN = _RootsTurn()
