"""Serves requests while the event loop is idle, without waking it up.

A request that wakes the loop, passes through one of pyfuse3's workers and lets the loop fall asleep again costs 120 µs of
Python, but most replies take less than ten. So just before the loop would sleep, the C module sleeps in its place. It waits
for the mount and for the loop's own events, and answers requests that need no task (``kernel.Connection.serve``). Only the
others wake a worker.

This needs the descriptor on which the loop waits. Trio does not reveal it, but the kernel does, in ``/proc``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from holdfast.fs.fuse.worker_turns import Readiness
from holdfast.kernel import Connection

_DESCRIPTORS = Path("/proc/self/fdinfo")


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
        service = _IdleService(connection, events, handed_over)
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
    ``handed_over``.

    Trio removes an instrument that raises. From then on pyfuse3's workers wait for the mount themselves.
    """

    def __init__(self, connection: Connection, events: int, handed_over: int) -> None:
        self._connection = connection
        self._events = events
        self._handed_over = handed_over
        self._token = trio.lowlevel.current_trio_token()
        self._has_begun = False
        self._has_ended = False

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
            self._token.run_sync_soon(_wake, idempotent=True)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """Stop serving: a task is runnable, so the loop has work."""
        del task
        self._connection.interrupt()

    def _end(self) -> None:
        self._has_ended, self._has_begun = True, False


def _wake() -> None:
    """Do nothing: the call itself has woken the loop."""


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
