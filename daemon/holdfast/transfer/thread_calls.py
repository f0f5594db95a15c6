"""Calls that threads have the event loop make: between two of its rounds, without the task that trio has for that.

``TrioToken.run_sync_soon`` writes to a socket. A task of trio's, which waits for it, reads it empty, makes the calls and
waits anew, and whom they wake runs in the round after that: two rounds of the loop and seven system calls for each end of a
request to a store. Here the thread makes a descriptor in the loop's epoll readable, once. No task waits for that, so trio
takes no notice of it, but its wait ends, and before the next tasks run, the calls are made.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import trio

_ONCE = select.EPOLLIN | select.EPOLLONESHOT
_Call = tuple[Callable[..., object], tuple[object, ...]]


class ThreadCalls(trio.abc.Instrument):
    """The calls that one event loop is to make. ``loop`` is the descriptor of its epoll."""

    def __init__(self, loop: int) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._epoll = select.epoll.fromfd(os.dup(loop))
        self._readable = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._readable, 0)
        self._calls: deque[_Call] = deque()
        self._lock = threading.Lock()
        self._is_open = True

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the loop call ``function``, from any thread. Raises ``trio.RunFinishedError`` once the loop has ended."""
        with self._lock:
            if self._is_open:
                self._calls.append((function, arguments))
                self.wake()
                return
        self._token.run_sync_soon(function, *arguments)

    def wake(self) -> None:
        """End the wait of the loop, or its next one if it does not wait now."""
        self._epoll.modify(self._readable, _ONCE)

    def after_io_wait(self, timeout: float) -> None:
        """Make the calls that are there. An error of one ends the loop, as it does with trio's own."""
        del timeout
        for _ in range(len(self._calls)):
            function, arguments = self._calls.popleft()
            try:
                function(*arguments)
            except BaseException as problem:  # noqa: BLE001 trio would go on without this instrument
                self._token.run_sync_soon(_fail, problem)

    def close(self) -> None:
        """Make the last calls, and leave all that come later to trio."""
        with self._lock:
            self._is_open = False
            self._epoll.unregister(self._readable)
            self._epoll.close()
            os.close(self._readable)
        self.after_io_wait(0.0)


_OF_LOOP: trio.lowlevel.RunVar[ThreadCalls | None] = trio.lowlevel.RunVar("calls of threads", None)


@contextmanager
def without_trios_task(loop: int) -> Iterator[ThreadCalls]:
    """Have ``soon_here`` do without that task in this event loop while the context lasts. ``loop`` is as above."""
    calls = ThreadCalls(loop)
    trio.lowlevel.add_instrument(calls)
    reset = _OF_LOOP.set(calls)
    try:
        yield calls
    finally:
        _OF_LOOP.reset(reset)
        trio.lowlevel.remove_instrument(calls)
        calls.close()


def soon_here() -> Callable[..., None]:
    """Return the function by which threads have this event loop call another one with arguments, in their order.

    It raises ``trio.RunFinishedError`` once the loop has ended.
    """
    calls = _OF_LOOP.get()
    return trio.lowlevel.current_trio_token().run_sync_soon if calls is None else calls.soon


def _fail(problem: BaseException) -> NoReturn:
    raise problem
