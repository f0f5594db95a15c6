"""Retries of requests to a store after a passing error, with growing pauses, until a deadline.

Every part of this package retries with a ``Retry``. Spark takes any error for corruption and silently falls
back to older state, so an error is the last thing to hand out. An answer of the store, even a refusal, is final.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from holdfast.errors import HoldfastError, RemoteError, RemoteUnavailableError
from holdfast.transfer.queued_callers import QueuedCallers

_T = TypeVar("_T")

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_DOUBLINGS = 10


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
