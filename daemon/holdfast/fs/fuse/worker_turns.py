"""Turns of pyfuse3's workers at waiting for the kernel's next request.

Of pyfuse3's several workers, the one that holds a lock waits for the descriptor, and the others wait for the lock. With
``trio.Lock`` every request costs a hand-over to another worker and two rounds of the event loop. Here the lock stays free
when it is released: the worker that has just replied takes it again, and another one is woken only if that worker has to
wait for something else. A request that is already there is read without a round of the event loop, but only within a slice
of time, so that other tasks can run. This halves the time of a stat (docs/performance.md).

pyfuse3 looks up its event loop in its module variable ``trio``, for its own asyncio mode; this module replaces it.
"""

from __future__ import annotations

import select
from collections import deque
from typing import Any, Protocol

import pyfuse3
import trio

_SLICE_SECONDS = 0.001  # far above a request's 20 µs, far below what users notice


class Readiness(Protocol):
    """Tells when pyfuse3's descriptor is readable, and ends such waits, like the functions of ``trio.lowlevel``."""

    async def wait_readable(self, fd: int) -> None:
        """Return when ``fd`` may be readable."""

    def notify_closing(self, fd: int) -> None:
        """End all waits for ``fd`` with ``trio.ClosedResourceError``."""


def take_turns(readiness: Readiness) -> None:
    """Install this scheme for pyfuse3's workers in this event loop. Call it before ``pyfuse3.main``."""
    turns = _Turns()
    trio.lowlevel.add_instrument(turns)
    pyfuse3.trio = _Trio(turns, readiness)  # type: ignore[attr-defined]


class _Turns(trio.abc.Instrument):
    """The lock that the workers share. If it is free while workers are parked, the current task step has not ended yet."""

    def __init__(self) -> None:
        self._taken = False
        self._parked: deque[trio.lowlevel.Task] = deque()

    async def __aenter__(self) -> None:
        while self._taken:
            await self._park()
        self._taken = True

    async def __aexit__(self, *problem: object) -> None:
        self._taken = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Wake a parked worker after a task step, if the lock is free."""
        del task
        if not self._taken and self._parked:
            trio.lowlevel.reschedule(self._parked.popleft())

    async def _park(self) -> None:
        task = trio.lowlevel.current_task()

        def leave(_: object) -> trio.lowlevel.Abort:
            self._parked.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._parked.append(task)
        await trio.lowlevel.wait_task_rescheduled(leave)


class _LowLevel:
    """Stands in for ``trio.lowlevel``, with a faster ``wait_readable`` for pyfuse3's only descriptor."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._poll: select.poll | None = None
        self._until = 0.0
        self.notify_closing = readiness.notify_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(trio.lowlevel, name)

    async def wait_readable(self, fd: int) -> None:
        """Return when ``fd`` is readable."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(fd, select.POLLIN)
        if not self._poll.poll(0):
            await self._readiness.wait_readable(fd)
        elif trio.current_time() < self._until:
            return
        else:
            await trio.lowlevel.checkpoint()
        self._until = trio.current_time() + _SLICE_SECONDS


class _Trio:
    """Stands in for ``trio``, with the replacements above."""

    def __init__(self, turns: _Turns, readiness: Readiness) -> None:
        self._turns = turns
        self.lowlevel = _LowLevel(readiness)

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)

    def Lock(self) -> _Turns:  # noqa: N802 the name of trio's class
        """Return the lock for the workers. pyfuse3 calls this once."""
        return self._turns
