"""A store's slots for requests, shared by users: each user has a queue, and the queues take turns.

What nobody waits for (prefetch, late uploads, deletions) comes after that, except once in a while, and never has all slots.
Behind that in turn comes what may take any time (standby copies), which leaves twice as many slots free.

With one queue for all, whoever asks most would be answered most, and a single request of another user would wait for all of
them. A task works for the user whose request it serves, or in whose request it was started (``ASKING_USER``).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextvars import ContextVar
from dataclasses import dataclass

import trio

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


def rank() -> int:
    """Return how urgent the work of this task is: 0 if somebody waits for it, 1 in the background, 2 behind all others."""
    return 1 + BEHIND_ALL.get() if IN_BACKGROUND.get() else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A task that waits for a slot: the event that gives it one, and the work that it is part of."""

    slot: trio.Event
    work: object


class FairSlots:
    """A number of slots; stands in for a ``trio.CapacityLimiter`` in ``trio.to_thread.run_sync``."""

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

    async def acquire_on_behalf_of(self, borrower: object) -> None:
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
                self.release_on_behalf_of(borrower)
            else:
                queue.remove(waiting)
                if not queue and not urgency:
                    del self._waiting[user]
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        """Give a slot back: it goes to the next user's oldest request, or to the background."""
        del borrower  # a thread's; slots are not told apart
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
