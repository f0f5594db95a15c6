"""System calls that another process makes, because a user decides how long they take.

A read or write past the daemon (passthrough) holds the lock of the backing file's inode while the kernel copies to or from
the caller's memory. If that memory is a mapping of a file system of the caller's own, it may never come. Whoever then
unlinks, renames, links or changes the file waits in the kernel and can't be killed. Freeing a file in many pieces takes
minutes, and the process that closes it can't be killed either. If this were the daemon, a killed daemon would not end, and
the next one could not start. So another process makes these calls (``outside_process``), each in a thread of its own.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import socket
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from holdfast.store import outside_process
from holdfast.store.outside_process import RESULT
from holdfast.system.helper_programs import started

_MOST_KEPT = 500
"""The limit of calls that are kept because the channel has no room for them."""
_LONGEST_POLL_SECONDS = 1.0


class Answer:
    """The future outcome of a call. Close it, or wait until it is there."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the call has ended."""
        return self._channel.fileno()

    def has_come(self, within_seconds: float = 0.0) -> bool:
        """Say whether the call has ended, or ends within this time."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        return bool(poll.poll(within_seconds * 1000))

    def has_ended(self) -> bool:
        """Say whether the call has ended, also after ``take`` or ``close``."""
        return self._channel.fileno() < 0 or self.has_come()

    def take(self) -> None:
        """Return if the call has succeeded, or raise its ``OSError``; EIO if the process was killed. Call it once."""
        with self._channel:
            number, _ = result_in(self._channel.recv(RESULT.size))
        if number:
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        """Stop waiting for the call."""
        self._channel.close()


class OutsideCalls:
    """Starts calls in the other process. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._kept: deque[tuple[bytes, list[int]]] = deque()
        """Calls, with descriptors of their own, that the channel had no room for: the process is slow to take them."""
        self._sends_kept = False
        self.starts = 0
        """The number of times that the process was started. The calls of one that was killed have ended."""

    def start(self) -> None:
        """Start the process, which takes a moment on a busy machine. Otherwise the first call starts it."""
        with self._lock:
            if self._channel is None:
                self._channel = self._start()

    def begin(self, call: str, descriptors: Sequence[int], *arguments: int | bytes) -> Answer:
        """Begin a call of ``outside_process``; the descriptors are duplicated. Raises ``OSError`` if it can't be sent."""
        here, there = socket.socketpair()
        with there:
            try:
                self.tell(there, call, descriptors, *arguments)
            except BaseException:
                here.close()
                raise
        return Answer(here)

    def tell(self, answer_to: socket.socket, call: str, descriptors: Sequence[int], *arguments: int | bytes) -> None:
        """Do what ``begin`` does, with a socket that gets the outcome (``result_in``)."""
        self._send(marshal.dumps((call, arguments)), [answer_to.fileno(), *descriptors])

    def close(self) -> None:
        """Make the process end, without waiting for it."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            while self._kept:
                _close_all(self._kept.popleft()[1])

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        """Send a call, or keep it for a thread to send: nobody waits for the process here."""
        with self._lock:
            if self._kept or not self._send_now(message, descriptors):
                self._keep(message, descriptors)

    def _send_now(self, message: bytes, descriptors: list[int]) -> bool:
        """Send a call; say whether the channel had room for it. A process that was killed is replaced."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
        with suppress(BlockingIOError):
            if self._channel is not None:
                with suppress(BrokenPipeError, ConnectionResetError):
                    self._channel.sendmsg([message], rights, socket.MSG_DONTWAIT)
                    return True
                self._channel.close()
            self._channel = self._start()
            self._channel.sendmsg([message], rights, socket.MSG_DONTWAIT)
            return True
        return False

    def _keep(self, message: bytes, descriptors: list[int]) -> None:
        """Keep a call. Raises ``OSError`` if too many are kept already, or it can't be."""
        if len(self._kept) >= _MOST_KEPT:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        copies: list[int] = []
        try:
            for fd in descriptors:
                copies.append(os.dup(fd))  # noqa: PERF401 - those made so far are closed if one fails
            if not self._sends_kept:
                threading.Thread(target=self._send_kept, name="outside-calls", daemon=True).start()
                self._sends_kept = True
        except (OSError, RuntimeError):  # no more descriptors, or threads
            _close_all(copies)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from None
        self._kept.append((message, copies))

    def _send_kept(self) -> None:
        """Send what is kept as the channel has room, in a thread that ends when nothing is left."""
        while True:
            with self._lock:
                while self._kept and self._sent_or_lost(*self._kept[0]):
                    _close_all(self._kept.popleft()[1])
                if not self._kept or self._channel is None:
                    self._sends_kept = False
                    return
                poll = select.poll()
                poll.register(self._channel, select.POLLOUT)
            poll.poll(_LONGEST_POLL_SECONDS * 1000)

    def _sent_or_lost(self, message: bytes, descriptors: list[int]) -> bool:
        """Send a kept call. If it can't be sent at all, whoever waits for it gets EIO once it is closed."""
        try:
            return self._send_now(message, descriptors)
        except OSError:
            return True

    def _start(self) -> socket.socket:
        self.starts += 1
        return started(outside_process.__file__)[0]


def _close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def result_in(body: bytes) -> tuple[int, int]:
    """Return errno or 0, and the number that the call returns, from what the process has written."""
    number, value = RESULT.unpack(body) if body else (errno.EIO, 0)
    return number, value
