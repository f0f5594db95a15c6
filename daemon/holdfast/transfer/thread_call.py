"""A call in a worker thread whose error, when it has been dealt with, leaves nothing in memory.

``trio.to_thread.run_sync`` hands an error over in a way that refers to itself: the result has the error, whose traceback has
a frame of trio's, which has the result. Such a cycle stays in memory, with all that its frames refer to (such as the bytes
of a failed PUT), until the garbage collector runs, and that may be a hundred errors later. Here only the traceback of a
caught error has these frames, and no frame has the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import trio

_T = TypeVar("_T")


async def call_in_thread(function: Callable[[], _T], limiter: trio.CapacityLimiter) -> _T:
    """Return what ``function`` returns in a thread, or raise its error. Cancellation does not wait for the thread."""
    problems: list[Exception] = []

    def call() -> _T | None:
        try:
            return function()
        except Exception as problem:  # noqa: BLE001 it is raised below
            problems.append(problem)
            return None

    result = await trio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=True)
    if problems:
        raise problems.pop()
    return cast(_T, result)
