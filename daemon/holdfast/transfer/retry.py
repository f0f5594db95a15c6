"""Retries of requests to a store after a passing error, with growing pauses, until a deadline.

Every part of this package retries with a ``Retry``. Spark takes any error for corruption and silently falls
back to older state, so an error is the last thing to hand out. An answer of the store, even a refusal, is final.

The deadline of a caller that has waited in the kernel behind others begins when it began to wait (``QueuedCallers``). The
kernel holds a directory's lock while a name in it is created, renamed or removed. Whoever else wants to change the directory
comes to the daemon only when that has ended, and would then begin a deadline of its own: the last of N callers would hear of
an outage after N deadlines. So while operations fail, ``/proc`` is read now and then, and what a thread has waited there
already counts for its deadline.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from holdfast.errors import HoldfastError, RemoteError, RemoteUnavailableError
from holdfast.system.blocked_threads import blocked_threads

_T = TypeVar("_T")

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_DOUBLINGS = 10
_SECONDS_BETWEEN_LOOKS = 2.0
_VALID_SECONDS = 5.0
"""The time after a look in which a thread that was blocked counts as coming from there."""


class QueuedCallers:
    """The threads that were seen to wait in the kernel. A thread that was told of a failure begins anew."""

    def __init__(self, look: Callable[[], Mapping[int, int]] = blocked_threads) -> None:
        self._look = look
        self._next_look = -math.inf
        self._looked_at = -math.inf
        self._since: dict[int, tuple[int, float]] = {}
        """For each thread the number of times that it had gone to sleep, and the trio time at which it was first seen so."""

    async def look(self) -> None:
        """See who waits, unless that was done a moment ago. Call it after each failure."""
        now = trio.current_time()
        if now < self._next_look:
            return
        self._next_look = now + _SECONDS_BETWEEN_LOOKS
        try:
            blocked = await trio.to_thread.run_sync(self._look, abandon_on_cancel=True)
        except OSError:  # no descriptor is free, for example: the operation is tried again as without a look
            return
        known, now = self._since, trio.current_time()
        self._looked_at, self._since = now, {}
        for thread, sleeps in blocked.items():
            before = known.get(thread)
            self._since[thread] = before if before is not None and before[0] == sleeps else (sleeps, now)

    def began(self, thread: int) -> float:
        """Return the trio time from which ``thread``, whose request is here now, has waited."""
        now = trio.current_time()
        if thread not in self._since or now - self._looked_at > _VALID_SECONDS:
            return now
        return self._since[thread][1]

    def told(self, thread: int) -> None:
        """Note that ``thread`` hears of a failure: whatever it asks next is another operation."""
        self._since.pop(thread, None)


class Retry:
    """The tries of one operation, which begins now. ``failures`` counts those that failed and were followed by another.

    With ``queued``, the operation of ``thread`` began when that thread began to wait in the kernel behind others.
    """

    def __init__(
        self, deadline_seconds: float, jitter: random.Random, queued: QueuedCallers | None = None, thread: int = 0
    ) -> None:
        self.failures = 0
        self._deadline_seconds = deadline_seconds
        began = queued.began(thread) if queued is not None and thread else trio.current_time()
        self._deadline = began + deadline_seconds
        self._jitter = jitter
        self._queued = queued
        self._thread = thread

    async def run(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """Await ``function`` until it succeeds. Raises its first final error, or at the deadline as ``next_try`` does.

        If the deadline passed in the kernel, ``function`` is not called: those behind would wait for it too.
        """
        if trio.current_time() > self._deadline:
            self._end()
            raise RemoteUnavailableError(
                f"no answer to those whom this operation has waited for; gave up after {self._deadline_seconds:g} s"
            )
        while True:
            try:
                return await function()
            except HoldfastError as problem:
                if not problem.transient:
                    raise
                if self._queued is not None:
                    await self._queued.look()
                begins = self.next_try(problem)
            await trio.sleep_until(begins)

    def next_try(self, problem: HoldfastError) -> float:
        """Note that a try failed with ``problem``; return the trio time for the next one.

        Raises ``RemoteUnavailableError``, with the message of ``problem``, when the deadline comes first.
        """
        bound: float = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self.failures, _DOUBLINGS))
        begins = trio.current_time() + bound * self._jitter.uniform(0.5, 1.0)
        if begins > self._deadline:
            self._end()
            raise RemoteUnavailableError(
                f"{problem}; gave up after {self._deadline_seconds:g} s and {self.failures + 1} tries",
                of_store=not isinstance(problem, RemoteError) or problem.of_store,
            ) from None
        self.failures += 1
        return begins

    def _end(self) -> None:
        if self._queued is not None:
            self._queued.told(self._thread)
