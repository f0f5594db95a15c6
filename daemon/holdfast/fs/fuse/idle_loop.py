"""What the event loop does while it has nothing to do: it answers requests, without waking up.

For a request to wake the loop, go through one of pyfuse3's workers and let the loop fall asleep again costs 120 µs of
Python, where most answers take less than ten. So just before the loop would sleep, the C module sleeps in its place,
waits for the mount and for what the loop waits for, and answers what needs no task of the loop's
(``kernel.Connection.serve``). Only what is left wakes a worker.

That takes the descriptor on which the loop waits. Trio does not tell it; the kernel does, in ``/proc``.
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
    """Serve ``connection`` in the event loop's idle time as long as the context lasts, where the C module can.

    What it gives tells pyfuse3's workers when there is something left for them.
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
            with suppress(KeyError):  # trio has done so after an error
                trio.lowlevel.remove_instrument(service)
    finally:
        os.close(handed_over)


class _IdleService(trio.abc.Instrument):
    """Serves the mount whenever the event loop is about to wait on ``events``; what is left is ``handed_over``.

    Trio takes an instrument away that raises. From then on pyfuse3's workers wait for the mount by themselves.
    """

    def __init__(self, connection: Connection, events: int, handed_over: int) -> None:
        self._connection = connection
        self._events = events
        self._handed_over = handed_over
        self._token = trio.lowlevel.current_trio_token()
        self._has_begun = False
        self._has_ended = False

    async def wait_readable(self, fd: int) -> None:
        """Return when pyfuse3 may have a request to read from ``fd``. The first one it must read by itself."""
        if self._has_begun:
            await trio.lowlevel.wait_readable(self._handed_over)
        else:
            await trio.lowlevel.wait_readable(fd)
            self._has_begun = not self._has_ended

    def notify_closing(self, fd: int) -> None:
        """Let whoever waits for ``fd`` end with ``trio.ClosedResourceError``. From now on nobody is served."""
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
            os.eventfd_write(self._handed_over, 1)  # whoever waits there looks at the mount, and waits for that next
            raise
        if is_over and timeout > 0:
            self._token.run_sync_soon(_wake, idempotent=True)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """A task can go on: the loop has something to do."""
        del task
        self._connection.interrupt()

    def _end(self) -> None:
        self._has_ended, self._has_begun = True, False


def _wake() -> None:
    """Do nothing: that it is called has woken the loop."""


class _Finder(trio.abc.Instrument):
    """Looks for the descriptor by which this event loop waits for ``fd``, while it does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.found: int | None = None

    def before_io_wait(self, timeout: float) -> None:
        """The loop is about to wait for ``timeout`` seconds."""
        del timeout
        self.found = self.found or _watcher_of(self._fd)


async def _loop_descriptor(fd: int) -> int | None:
    """Return the descriptor on which this event loop waits; None when it can't be found. ``fd`` must be readable."""
    finder = _Finder(fd)
    trio.lowlevel.add_instrument(finder)
    await trio.lowlevel.wait_readable(fd)
    trio.lowlevel.remove_instrument(finder)
    return finder.found


def _watcher_of(fd: int) -> int | None:
    """Return the descriptor of this process's epoll that watches ``fd`` (proc(5), fdinfo); None when there is none."""
    watched = f"tfd: {fd:8d} "
    with suppress(OSError):  # no /proc
        for entry in _DESCRIPTORS.iterdir():
            with suppress(FileNotFoundError):  # the listing's own descriptor
                if watched in entry.read_text():
                    return int(entry.name)
    return None
