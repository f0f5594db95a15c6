"""fsync of files that are not sent: threads that sync and reply on their own, past the event loop."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from operator import methodcaller

import trio

_MOST = 64


class Syncs:
    """The syncs under way, at most 64.

    ``reply`` gets the request and a positive errno or 0, ``took`` the number of its zone and the nanoseconds that it took;
    both from any thread.
    """

    def __init__(self, reply: Callable[[int, int], None], took: Callable[[int, int], None]) -> None:
        self._reply = reply
        self._took = took
        self._free = threading.BoundedSemaphore(_MOST)

    def begin(self, request: int, fd: int, zone: int, *, data_only: bool) -> bool:
        """Sync ``fd`` and reply to ``request``; False if too many are under way. The caller keeps ``fd`` open."""
        if not self._free.acquire(blocking=False):
            return False
        sync = partial(self._sync, request, os.fdatasync if data_only else os.fsync, fd, zone, time.perf_counter_ns())
        try:
            trio.lowlevel.start_thread_soon(sync, methodcaller("unwrap"))
        except RuntimeError:  # no more threads; a later request may get one
            self._free.release()
            return False
        return True

    def _sync(self, request: int, sync: Callable[[int], None], fd: int, zone: int, began_ns: int) -> None:
        number = 0
        try:
            sync(fd)
        except OSError as problem:
            number = problem.errno or errno.EIO
        self._free.release()
        self._reply(request, number)
        self._took(zone, time.perf_counter_ns() - began_ns)
