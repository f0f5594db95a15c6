"""Waiting for requests in the event loop: they are served while it is idle, and what is left goes to pyfuse3's workers.

A request that wakes the loop, passes through one of pyfuse3's workers and lets the loop fall asleep again costs 120 µs of
Python, but most replies take less than ten. So just before the loop would sleep, the C module sleeps in its place. It waits
for the mount and for the loop's own events, and answers requests that need no task (``kernel.Connection.serve``). Only the
others wake a worker. This needs the descriptor on which the loop waits. Trio does not reveal it, but the kernel does, in
``/proc``.

Of pyfuse3's several workers, the one that holds a lock waits for the descriptor, and the others wait for the lock. With
``trio.Lock`` every request costs a hand-over to another worker and two rounds of the event loop. Here the lock stays free
when it is released: the worker that has just replied takes it again, and another one is woken only if that worker has to
wait for something else. A request that is already there is read without a round of the event loop, but only within a slice
of time, so that other tasks can run. This halves the time of a stat (docs/performance.md). pyfuse3 looks up its event loop
in its module variable ``trio``, for its own asyncio mode; this module replaces it.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyfuse3
import trio

from holdfast.kernel import Connection
from holdfast.transfer.thread_calls import without_trios_task

_DESCRIPTORS = Path("/proc/self/fdinfo")
_SLICE_SECONDS = 0.001  # far above a request's 20 µs, far below what users notice


class Readiness(Protocol):
    """Tells when pyfuse3's descriptor is readable, and ends such waits, like the functions of ``trio.lowlevel``."""

    async def wait_readable(self, fd: int) -> None:
        """Return when ``fd`` may be readable."""

    def notify_closing(self, fd: int) -> None:
        """End all waits for ``fd`` with ``trio.ClosedResourceError``."""


@asynccontextmanager
async def served_when_idle(connection: Connection) -> AsyncIterator[Readiness]:
    """Serve ``connection`` in the event loop's idle time while the context lasts, if the C module can.

    Yields the object that tells pyfuse3's workers when there are requests left for them.
    """
    handed_over = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        events = await _loop_descriptor(handed_over) if connection.sees_requests else None
        if events is None:
            yield trio.lowlevel
            return
        os.eventfd_read(handed_over)
        with without_trios_task(events) as calls:
            service = _IdleService(connection, events, handed_over, calls.wake)
            trio.lowlevel.add_instrument(service)
            try:
                yield service
            finally:
                with suppress(KeyError):  # trio has removed it after an error
                    trio.lowlevel.remove_instrument(service)
    finally:
        os.close(handed_over)


class _IdleService(trio.abc.Instrument):
    """Serves the mount whenever the event loop is about to wait on ``events``. Other requests are signalled by
    ``handed_over``; ``wake`` ends a wait on ``events``.

    Trio removes an instrument that raises. From then on pyfuse3's workers wait for the mount themselves.
    """

    def __init__(self, connection: Connection, events: int, handed_over: int, wake: Callable[[], None]) -> None:
        self._connection = connection
        self._events = events
        self._handed_over = handed_over
        self._wake = wake
        self._has_begun = False
        self._has_ended = False
        self.task_scheduled = connection.interrupt  # type: ignore[assignment, method-assign]
        """Stops serving: a task is runnable, so the loop has work. It is C's function, because it is called so often."""

    async def wait_readable(self, fd: int) -> None:
        """Return when pyfuse3 may have a request to read from ``fd``. It must read the first one itself."""
        if self._has_begun:
            await trio.lowlevel.wait_readable(self._handed_over)
        else:
            await trio.lowlevel.wait_readable(fd)
            self._has_begun = not self._has_ended

    def notify_closing(self, fd: int) -> None:
        """End all waits for ``fd`` with ``trio.ClosedResourceError``, and stop serving."""
        self._end()
        trio.lowlevel.notify_closing(fd)
        trio.lowlevel.notify_closing(self._handed_over)

    def before_io_wait(self, timeout: float) -> None:
        """The loop is about to wait for ``timeout`` seconds."""
        if not self._has_begun:
            return
        try:
            is_over = self._connection.serve(self._events, self._handed_over, timeout)
        except BaseException:
            self._end()
            os.eventfd_write(self._handed_over, 1)  # the worker waiting there checks the mount, then waits for it
            raise
        if is_over and timeout > 0:
            self._wake()

    def _end(self) -> None:
        self._has_ended, self._has_begun = True, False


class _Finder(trio.abc.Instrument):
    """Finds the descriptor by which this event loop waits for ``fd``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.found: int | None = None

    def before_io_wait(self, timeout: float) -> None:
        """The loop is about to wait for ``timeout`` seconds."""
        del timeout
        self.found = self.found or _watcher_of(self._fd)


async def _loop_descriptor(fd: int) -> int | None:
    """Return the descriptor on which this event loop waits; None if it can't be found. ``fd`` must be readable."""
    finder = _Finder(fd)
    trio.lowlevel.add_instrument(finder)
    await trio.lowlevel.wait_readable(fd)
    trio.lowlevel.remove_instrument(finder)
    return finder.found


def _watcher_of(fd: int) -> int | None:
    """Return the descriptor of this process's epoll that watches ``fd`` (proc(5), fdinfo); None if there is none."""
    watched = f"tfd: {fd:8d} "
    with suppress(OSError):  # no /proc
        for entry in _DESCRIPTORS.iterdir():
            with suppress(FileNotFoundError):  # the descriptor of the listing itself
                if watched in entry.read_text():
                    return int(entry.name)
    return None


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
