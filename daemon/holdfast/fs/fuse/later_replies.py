"""Replies that come later, past pyfuse3: requests that had to wait, each finished by a task, and turns for them.

pyfuse3 would parse such a request again and pass it to one of its workers, which costs about 100 µs of processor time. To
begin a task and end it takes a quarter of that, so a task that is done waits for the next request.
An fsync of a file that is not sent takes no task either: a thread syncs and replies on its own (``Syncs``).

How many requests of one user wait for a store, a disk or a lock at the same time is limited: each takes a task, and its
share of the store's requests. Those beyond the limit wait for the user's own earlier ones, in their order. Root does not
wait. While a request waits for its turn, the daemon holds nothing for it, but the kernel may: a directory's lock for the
requests about names, a page's for reads. A commit that has lost its name waits for the directory's lock
(``file_io.commit``), so names, commits and data have turns of their own: none waits for one of another kind.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Token
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import trio

from holdfast.errors import LostBytesError
from holdfast.fs.fuse.error_replies import errno_of
from holdfast.fs.fuse.request_observer import Observation, Request, RequestObserver, errno_in, name_of
from holdfast.kernel import Connection
from holdfast.store import sync_bytes
from holdfast.system.waits import marked
from holdfast.telemetry import OBSERVED, Counters, RareEvents, waiting_for
from holdfast.transfer import ASKING_USER

_MOST_WAITING = 1024
_MOST_SYNCS = 64
_MOST_IDLE = 16
"""The number of tasks that wait for a request. More are there only while more requests are under way."""
_NO_TURN = nullcontext()


_Work = Coroutine[Any, Any, bytes | int | None]
_Reply = tuple[int, _Work, Observation]


class LaterReplies:
    """Has a task for each request that is to be replied to later."""

    def __init__(self, connection: Connection, observer: RequestObserver, counters: Counters) -> None:
        self._connection = connection
        self._observer = observer
        self._counters = counters
        self._tasks: trio.Nursery | None = None
        self._most_idle = 0
        self._idle: list[trio.lowlevel.Task] = []
        """The tasks that wait for a request."""
        self._begun: deque[_Reply] = deque()
        """The replies that tasks which have waited are about to make."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allow tasks while the context lasts. It ends when all requests have their replies."""
        async with trio.open_nursery() as self._tasks:
            self._most_idle = _MOST_IDLE
            try:
                yield
            finally:
                self._most_idle = 0
                while self._idle:
                    trio.lowlevel.reschedule(self._idle.pop())

    def begin(self, request: Request, work: _Work) -> bool:
        """Reply to ``request`` with the body or errno that ``work`` returns, or the errno of its error. Returns True."""
        assert self._tasks is not None, "requests are answered while the session serves"
        reply = request.unique, work, self._observer.begin_later(request)
        if self._idle:
            self._begun.append(reply)
            trio.lowlevel.reschedule(self._idle.pop())
        else:
            self._tasks.start_soon(self._reply_to_all, reply)
        return True

    async def _reply_to_all(self, reply: _Reply | None) -> None:
        """Make a reply, then those of later requests, until there are enough tasks without this one."""
        while reply is not None:
            await self._reply(*reply)
            reply = None  # a task that waits keeps nothing of the request before, whose bytes may be many
            if len(self._idle) < self._most_idle:
                reply = await self._next()

    async def _next(self) -> _Reply | None:
        """Wait for a request; None if there will be none."""
        task = trio.lowlevel.current_task()

        def leave(_: object) -> trio.lowlevel.Abort:
            self._idle.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._idle.append(task)
        await trio.lowlevel.wait_task_rescheduled(leave)
        return self._begun.popleft() if self._begun else None

    async def _reply(self, request: int, work: _Work, observation: Observation) -> None:
        OBSERVED.set(observation.notes)
        try:
            answer = await marked(work, self._connection.executing, request)
            assert answer is not None, "only a request that has not waited may be left to pyfuse3"
        except Exception as problem:  # noqa: BLE001 the boundary is where all else ends
            answer = errno_of(problem, name_of(observation.opcode), self._counters)
        if isinstance(answer, int):
            self._connection.reply(request, answer)
        else:
            self._connection.reply(request, 0, answer)
        try:
            observation.end(errno_in(observation.opcode, answer))
        except Exception as problem:  # noqa: BLE001 the request has its reply; only its description is missing
            errno_of(problem, name_of(observation.opcode), self._counters)


class Syncs:
    """The syncs under way, at most 64.

    ``reply`` gets the request and a positive errno or 0, ``took`` the number of its zone and the nanoseconds that it took;
    ``lost``, which replies itself, gets the request and the descriptor of a file of which the disk has refused bytes; all of
    them from any thread.
    """

    def __init__(
        self, reply: Callable[[int, int], None], took: Callable[[int, int], None], lost: Callable[[int, int], None]
    ) -> None:
        self._reply = reply
        self._took = took
        self._lost = lost
        self._free = threading.BoundedSemaphore(_MOST_SYNCS)

    def begin(self, request: int, fd: int, zone: int, *, data_only: bool) -> bool:
        """Sync ``fd`` and reply to ``request``; False if too many are under way. The caller keeps ``fd`` open."""
        if not self._free.acquire(blocking=False):
            return False
        sync = partial(self._sync, request, fd, zone, time.perf_counter_ns(), data_only=data_only)
        try:
            trio.lowlevel.start_thread_soon(sync, methodcaller("unwrap"))
        except RuntimeError:  # no more threads; a later request may get one
            self._free.release()
            return False
        return True

    def _sync(self, request: int, fd: int, zone: int, began_ns: int, *, data_only: bool) -> None:
        reply = partial(self._reply, request, 0)
        try:
            sync_bytes(fd, data_only=data_only)
        except LostBytesError:
            reply = partial(self._lost, request, fd)
        except OSError as problem:
            reply = partial(self._reply, request, problem.errno or errno.EIO)
        self._free.release()
        reply()
        self._took(zone, time.perf_counter_ns() - began_ns)


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
        return _NO_TURN if uid == 0 else _Turn(self, uid)

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
