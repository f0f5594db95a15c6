"""Limits how many requests of one user wait for a store, a disk or a lock at the same time.

Each takes a task, and its share of the store's requests. Those beyond the limit wait for the user's own earlier ones, in
their order. Root does not wait.

While a request waits here, the daemon holds nothing for it, but the kernel may: a directory's lock for the requests about
names, a page's for reads. A commit that has lost its name waits for the directory's lock (``file_io.commit``), so names,
commits and data have turns of their own: none waits for one of another kind.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import AbstractAsyncContextManager
from contextvars import Token
from typing import NamedTuple

import trio

from holdfast.telemetry import RareEvents, waiting_for
from holdfast.transfer import ASKING_USER

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

    @property
    def running(self) -> int:
        """The number of requests that have a turn; root's need none."""
        return sum(user.running for user in self._users.values())

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a turn."""
        return sum(len(user.waiting) for user in self._users.values())

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
            with waiting_for("turn"):
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


class Turns(NamedTuple):
    """The turns of each kind of request."""

    names: RequestTurns
    """Requests about names and attributes, and opens."""
    commits: RequestTurns
    """Closes and syncs."""
    data: RequestTurns
    """Reads and writes of files that are still being fetched."""

    @classmethod
    def of_each(cls, per_user: int, rare_events: RareEvents) -> Turns:
        """Let ``per_user`` requests of each kind and user run at once."""
        return cls(*(RequestTurns(per_user, rare_events) for _ in cls._fields))


class _Turn:
    __slots__ = ("_before", "_turns", "_uid")
    _before: Token[int]

    def __init__(self, turns: RequestTurns, uid: int) -> None:
        self._turns = turns
        self._uid = uid

    async def __aenter__(self) -> None:
        await self._turns.enter(self._uid)
        self._before = ASKING_USER.set(self._uid)

    async def __aexit__(self, *problem: object) -> None:
        ASKING_USER.reset(self._before)
        self._turns.leave(self._uid)


class _RootsTurn:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *problem: object) -> None:
        pass


_ROOTS_TURN = _RootsTurn()
