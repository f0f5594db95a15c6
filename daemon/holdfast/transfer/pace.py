"""Limits the use of a store to so many bytes or requests a second, first those that somebody waits for.

One turn in ``BACKGROUND_EVERY`` is for the others.

What is taken is paid for afterwards, so a large object goes at full speed and the next one waits: the rate holds over
seconds, not within one request. Nothing is saved up: after a pause the rate is the same.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect, insort

import trio

from holdfast.transfer.library_calls import BACKGROUND_EVERY, rank

_Turn = tuple[int, int]
"""The key by which turns are ordered: the rank of the work, then the turn's number."""


class Pace:
    """Lets ``per_second`` units pass in a second; 0: any number."""

    def __init__(self, per_second: float = 0.0) -> None:
        self._per_second = per_second
        self.is_limited = per_second > 0
        """True if there is a limit. Without one, ``take`` need not be called."""
        self._free_at = 0.0
        self._waiting: list[_Turn] = []
        self._numbers = itertools.count()
        self._turns = 0
        self._changed = trio.Event()

    def set_rate(self, per_second: float) -> None:
        """Use another rate from now on, also for those that wait."""
        now = trio.current_time()
        debt = max(0.0, self._free_at - now) * self._per_second
        self._per_second, self.is_limited = per_second, per_second > 0
        self._free_at = now + debt / per_second if per_second else now
        self._wake()

    async def take(self, amount: float) -> None:
        """Wait until what was taken before is paid for, and take ``amount``."""
        if not self._per_second:
            return
        turn = rank(), next(self._numbers)
        insort(self._waiting, turn)
        self._wake()
        try:
            while not self._may_go(turn):
                changed = self._changed
                with trio.move_on_at(self._free_at if self._next() == turn else math.inf):
                    await changed.wait()
            self._turns += 1
            if self._per_second:
                self._free_at = max(self._free_at, trio.current_time()) + amount / self._per_second
        finally:
            self._waiting.remove(turn)
            self._wake()

    def _may_go(self, turn: _Turn) -> bool:
        return not self._per_second or (self._next() == turn and self._free_at <= trio.current_time())

    def _next(self) -> _Turn:
        if self._turns % BACKGROUND_EVERY == BACKGROUND_EVERY - 1 and self._waiting[-1][0]:
            return self._waiting[bisect(self._waiting, (1, -1))]
        return self._waiting[0]

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
