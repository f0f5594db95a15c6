"""Calls to a store's library in threads: each has a slot, which users share fairly, and an end.

Each user has a queue for a store's slots, and the queues take turns. What nobody waits for (prefetch, late uploads,
deletions) comes after that, except once in a while, and never has all slots. Behind that in turn comes what may take any
time (standby copies), which leaves twice as many slots free. With one queue for all, whoever asks most would be answered
most, and a single request of another user would wait for all of them. A task works for the user whose request it serves, or
in whose request it was started (``ASKING_USER``).

A call that shows no sign of life for too long is given up, because no library is trusted to come back. The thread of a call
that was given up may stay for ever, but its slot is free, and whoever waits gets an error. Threads of the daemon's stores
don't keep its process alive.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio

from holdfast.errors import RemoteUnavailableError
from holdfast.remote import CallLife
from holdfast.transfer.thread_calls import soon_here

ASKING_USER: ContextVar[int] = ContextVar("asking user", default=0)
"""The user id for whom a task works; 0: root, or the daemon itself."""
IN_BACKGROUND: ContextVar[bool] = ContextVar("in background", default=False)
"""True in a task whose work nobody waits for."""
BEHIND_ALL: ContextVar[bool] = ContextVar("behind all", default=False)
"""True in a task in the background that lets the rest of the background go first."""
WORK: ContextVar[object] = ContextVar("work", default=None)
"""The work that a task is part of, which may have several requests at the same time; None if it has one."""
BACKGROUND_EVERY = 8
"""One turn in this many is for work that nobody waits for, so that it is done some day."""
_KEPT_FREE_PART = 4
"""One slot in this many is never used in the background, but at least one if there are two."""
_MOST_LOST = 64
"""The number of threads that may be lost in a library. From then on no call is begun until one of them comes back."""
_T = TypeVar("_T")


def rank() -> int:
    """Return how urgent the work of this task is: 0 if somebody waits for it, 1 in the background, 2 behind all others."""
    return 1 + BEHIND_ALL.get() if IN_BACKGROUND.get() else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A task that waits for a slot: the event that gives it one, and the work that it is part of."""

    slot: trio.Event
    work: object


class FairSlots:
    """A number of slots for calls to a store."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        kept_free = max(slots // _KEPT_FREE_PART, int(slots > 1))
        self._kept_free = (0, kept_free, max(0, min(2 * kept_free, slots - 1)))
        """The number of slots that work of each rank leaves free."""
        self._background: tuple[deque[_Waiting], ...] = (deque(), deque())
        """The waiting tasks of rank 1, and of rank 2."""
        self._turns = 0
        self._waiting: OrderedDict[int, deque[_Waiting]] = OrderedDict()
        """The waiting tasks of each user; the user whose turn is next comes first. Nobody waits while a slot is free."""

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for a slot."""
        return sum(map(len, self._background)) + sum(map(len, self._waiting.values()))

    def waiting_beside(self, work: object) -> int:
        """Return the number of tasks that wait for a slot and are not part of ``work``."""
        return sum(each.work is not work for queue in (*self._background, *self._waiting.values()) for each in queue)

    async def acquire(self) -> None:
        """Wait for a slot. A task that is cancelled has none."""
        urgency = rank()
        if self._free > self._kept_free[urgency]:
            self._free -= 1
            return
        user, waiting = ASKING_USER.get(), _Waiting(trio.Event(), WORK.get())
        queue = self._background[urgency - 1] if urgency else self._waiting.setdefault(user, deque())
        queue.append(waiting)
        try:
            await waiting.slot.wait()
        except BaseException:
            if waiting.slot.is_set():
                self.release()
            else:
                queue.remove(waiting)
                if not queue and not urgency:
                    del self._waiting[user]
            raise

    def release(self) -> None:
        """Give a slot back: it goes to the next user's oldest request, or to the background."""
        self._turns += 1
        for queue, kept_free in zip(self._background, self._kept_free[1:], strict=True):
            is_its_turn = self._turns % BACKGROUND_EVERY == 0 if self._waiting else self._free >= kept_free
            if queue and is_its_turn:
                queue.popleft().slot.set()
                return
        if not self._waiting:
            self._free += 1
            return
        user, queue = next(iter(self._waiting.items()))
        queue.popleft().slot.set()
        if queue:
            self._waiting.move_to_end(user)
        else:
            del self._waiting[user]


class LibraryCalls:
    """The calls to one store, which may be silent for ``requests_in_a_call`` times the time of a request."""

    def __init__(self, store_name: str, request_timeout_seconds: float, requests_in_a_call: int) -> None:
        self._store_name = store_name
        self._request_timeout_seconds = request_timeout_seconds
        self._requests_in_a_call = requests_in_a_call
        self._running: set[_Call[Any]] = set()
        self._is_watching = False
        self._lost = 0

    async def run(self, kind: str, function: Callable[[], _T], slots: FairSlots) -> _T:
        """Return what ``function`` returns in a thread, or raise its error. Cancellation does not wait for the thread.

        Raises ``RemoteUnavailableError`` when the call is given up, or when too many were.
        """
        if self._lost >= _MOST_LOST:
            raise RemoteUnavailableError(
                f"{kind} to {self._store_name}: {self._lost} earlier calls to its library have not come back"
            )
        await slots.acquire()
        call = _Call(function, slots, self._came_back)
        call.start()
        self._running.add(call)
        if not self._is_watching:
            self._is_watching = True
            trio.lowlevel.spawn_system_task(self._watch)
        await call.ended.wait()
        if call.life.is_given_up:
            raise RemoteUnavailableError(
                f"{kind} to {self._store_name}: its library has not come back for {call.given_up_after_seconds:.0f} s; "
                "the call is given up",
                of_store=False,
            )
        return call.outcome()

    async def _watch(self) -> None:
        """Give up the calls that are silent for too long, until none is running.

        One task looks at all of them: a cancel scope for each takes longer than all else that a call does in the event loop.
        """
        shortest_seconds = wait_seconds = self._request_timeout_seconds * self._requests_in_a_call
        try:
            while self._running:
                await trio.sleep(wait_seconds)  # a call that begins meanwhile has as long, too
                for call in [call for call in self._running if self._seconds_left(call) <= 0.0]:
                    self._running.remove(call)
                    self._lost += 1
                    call.give_up()
                wait_seconds = max(0.0, min([shortest_seconds, *map(self._seconds_left, self._running)]))
        finally:
            self._is_watching = False

    def _seconds_left(self, call: _Call[Any]) -> float:
        allowed_seconds = self._request_timeout_seconds * (self._requests_in_a_call + call.life.requests)
        return allowed_seconds - call.silent_seconds()

    def _came_back(self, call: _Call[Any]) -> None:
        if call.life.is_given_up:
            self._lost -= 1
        else:
            self._running.remove(call)
            call.end()


class _Call(Generic[_T]):
    """One call in a thread of its own. It has its slot until it ends or is given up.

    ``trio.to_thread.run_sync`` would keep the slot as long as the thread; and it hands an error over in a way that refers to
    itself: the result has the error, whose traceback has a frame of trio's, which has the result. Such a cycle stays in
    memory, with all that its frames refer to (such as the bytes of a failed PUT), until the garbage collector runs.
    """

    def __init__(self, function: Callable[[], _T], slots: FairSlots, came_back: Callable[[_Call[Any]], None]) -> None:
        self.life = CallLife()
        self.ended = trio.Event()
        """Set when the thread comes back, or the call is given up."""
        self.given_up_after_seconds = 0.0
        self._function: Callable[[], _T] | None = function
        self._slots = slots
        self._came_back = came_back
        self._soon = soon_here()
        self._result: list[_T] = []
        self._problem: BaseException | None = None

    def start(self) -> None:
        """Begin the call. Without a thread for it, give the slot back and raise the error."""
        context = copy_context()
        try:
            trio.lowlevel.start_thread_soon(lambda: context.run(self._work), self._deliver)
        except BaseException:
            self._slots.release()
            raise

    def silent_seconds(self) -> float:
        """Return the time since the last sign of life."""
        return time.monotonic() - self.life.at

    def give_up(self) -> None:
        """End the call without its thread."""
        self.given_up_after_seconds = self.silent_seconds()
        self.life.is_given_up = True
        self.end()

    def end(self) -> None:
        """Give the slot back, and let whoever waits go on."""
        self._slots.release()
        self.ended.set()

    def outcome(self) -> _T:
        """Return the result of a call whose thread has come back, or raise its error, and keep neither."""
        problem, self._problem = self._problem, None
        if problem is None:
            return self._result.pop()
        try:
            raise problem
        finally:
            del problem

    def _work(self) -> None:
        assert self._function is not None
        try:
            self._result.append(self.life.lead(self._function))
        except BaseException as problem:  # noqa: BLE001 it is raised by ``outcome``
            self._problem = problem
        finally:
            self._function = None

    def _deliver(self, result: object) -> None:
        del result
        with suppress(trio.RunFinishedError):  # the daemon has ended meanwhile
            self._soon(self._came_back, self)
