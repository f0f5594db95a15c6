"""HTTP/1.1 over a Unix socket, as much of it as the control client needs, with http.client.

httpx does more, and with all that it loads takes 10 MB and a twentieth of a second of each process that asks a daemon.
Anything may listen on the socket: an answer has bounds, and a server that is silent is asked for a sign of life beside.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

ERRORS = (OSError, HTTPException)
"""The errors of a request that got no answer, or not all of it."""
_KEPT_SECONDS = 2.0  # less than the daemon keeps an idle connection
_QUIET_SECONDS = 10.0
_LIFE_SECONDS = 20.0
"""After so many seconds of silence a server is asked for a sign of life, and has so many for it. One that has too much to do
is late by a second or two; a supervisor replaces a daemon that has hung for 30 s."""
_SIGN_OF_LIFE = ("OPTIONS", "/v1/status")
"""A request that a daemon's event loop refuses by itself, whatever its threads and disks do."""
_PAUSE_SECONDS = 0.05
_PART_BYTES = 2**20
LARGEST_BYTES = 256 * 2**20
"""The limit for an answer and for a line of one: many times what a daemon with a million files sends."""


class SilentServerError(TimeoutError):
    """The server has given no sign of life."""


class AnswerTooLargeError(HTTPException):
    """An answer, or a line of it, is larger than any that is expected."""


def content_of(answer: HTTPResponse, most_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the content of an answer. Raises ``AnswerTooLargeError``, and ``IncompleteRead`` if it ends in the middle."""
    if (answer.length or 0) > most_bytes:
        raise AnswerTooLargeError(f"an answer of {answer.length} bytes")
    found = bytearray()
    while part := answer.read1(_PART_BYTES):
        found += part
        if len(found) > most_bytes:
            raise AnswerTooLargeError(f"an answer of more than {most_bytes} bytes")
    _check_end(answer)
    return bytes(found)


def lines_of(answer: HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of an answer as they come, without their ends.

    Raises ``IncompleteRead`` if it ends in the middle: iterating over the answer itself takes a connection that is lost
    between two chunks for the end. Raises ``AnswerTooLargeError`` for a line without an end.
    """
    rest = bytearray()
    while part := answer.read1(_PART_BYTES):
        *lines, last = part.split(b"\n")
        for line in lines:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > LARGEST_BYTES:
            raise AnswerTooLargeError(f"a line of more than {LARGEST_BYTES} bytes")
    _check_end(answer)
    if rest:
        yield bytes(rest)


def _check_end(answer: HTTPResponse) -> None:
    """Raise ``IncompleteRead`` if the answer has ended before the length that its head gives; else it is closed."""
    if answer.length:
        raise IncompleteRead(b"", answer.length)
    answer.read()


class UnixHttp:
    """Connections to the server behind ``path``, made as they are needed, and kept for a moment after an answer.

    Several threads may ask at the same time, and another request may be sent while the answer to one is read. ``headers``
    go with each of them. Requests raise what is in ``ERRORS``: ``TimeoutError`` if an answer has not come within so many
    seconds (None: as long as it takes), and ``SilentServerError`` before that if the server gives no sign of life.
    """

    def __init__(self, path: str, headers: Mapping[str, str]) -> None:
        self._path = path
        self._headers = dict(headers)
        self._idle: deque[_Connection] = deque()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def ask(
        self,
        method: str,
        target: str,
        content: bytes | None,
        timeout_seconds: float | None,
        most_bytes: int = LARGEST_BYTES,
    ) -> tuple[int, bytes]:
        """Send a request; return the status and the content of the answer."""
        with self.asking(method, target, content, timeout_seconds) as answer:
            return answer.status, content_of(answer, most_bytes)

    @contextmanager
    def asking(
        self,
        method: str,
        target: str,
        content: bytes | None,
        timeout_seconds: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send a request; yield the answer, to be read in the block. What is not read ends with the connection."""
        connection, answer, is_kept = self._connection(), None, False
        try:
            connection.patience = _Patience(timeout_seconds, self._gives_sign_of_life)
            is_sent = connection.sent(method, target, content, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            yield answer
            if is_sent and answer.isclosed() and connection.is_open:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
                is_kept = True
        finally:
            if not is_kept:
                if answer is not None:  # one that ends with the connection holds it open
                    answer.close()
                connection.close()

    def _connection(self) -> _Connection:
        """Return the connection that was used last, if it is still good, or a new one."""
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_good():
                    return connection
                connection.close()
        return _Connection(self._path)

    def _gives_sign_of_life(self) -> bool:
        """Ask the server for an answer, whatever it is: one that refuses the connection, or closes it, is alive too."""
        connection = _Connection(self._path)
        connection.patience = _Patience(_LIFE_SECONDS, lambda: True)
        try:
            connection.sent(*_SIGN_OF_LIFE, None, self._headers)
            connection.getresponse()
        except (BrokenPipeError, ConnectionResetError):
            return True
        except ERRORS:
            return False
        finally:
            connection.close()
        return True


class _Patience:
    """The patience of a request: it waits until its time is over, or the server is silent and ``is_alive`` says no."""

    def __init__(self, seconds: float | None, is_alive: Callable[[], bool]) -> None:
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._is_alive = is_alive

    def left(self) -> float:
        """Return how long to wait next. Raises ``TimeoutError`` if the time is over."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return min(seconds, _QUIET_SECONDS)

    def check(self) -> None:
        """Raise ``TimeoutError`` after a wait in vain, unless there is reason to wait on."""
        self.left()
        if not self._is_alive():
            raise SilentServerError


class _PatientSocket(socket.socket):
    """A socket on which silence is an error only if ``patience`` is at its end."""

    def __init__(self, patience: _Patience) -> None:
        super().__init__(socket.AF_UNIX)
        self.patience = patience

    def connect_to(self, path: str) -> None:
        """Connect, also to a server whose queue of connections is full."""
        until = time.monotonic() + _LIFE_SECONDS
        while True:
            self.settimeout(self.patience.left())
            try:
                return self.connect(path)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SilentServerError from None
                time.sleep(_PAUSE_SECONDS)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive: a reader of this socket calls it."""
        return self._patiently(lambda: super(_PatientSocket, self).recv_into(buffer, nbytes, flags))

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        """Send all of ``data``."""
        rest = memoryview(data).cast("B")
        while rest:
            sent = self._patiently(lambda: super(_PatientSocket, self).send(rest, flags))  # noqa: B023 called at once
            rest = rest[sent:]

    def _patiently(self, call: Callable[[], int]) -> int:
        while True:
            self.settimeout(self.patience.left())
            try:
                return call()
            except TimeoutError:
                self.patience.check()


class _Connection(HTTPConnection):
    """A connection to the socket ``path``, which it makes with the first request. ``patience`` is that of a request."""

    sock: _PatientSocket | None

    def __init__(self, path: str) -> None:
        super().__init__("holdfast")
        self._path = path
        self.patience = _Patience(None, lambda: True)
        self.idle_since = 0.0

    def connect(self) -> None:
        """Connect."""
        self.sock = _PatientSocket(self.patience)
        self.sock.connect_to(self._path)

    def sent(self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> bool:
        """Send a request; say whether all of it was taken. One that was refused before has an answer that says why."""
        if self.sock is not None:
            self.sock.patience = self.patience
        try:
            self.request(method, target, content, headers)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    @property
    def is_open(self) -> bool:
        """True if it can take another request."""
        return self.sock is not None

    def is_good(self) -> bool:
        """Say whether the server has neither closed it nor is about to."""
        if self.sock is None or time.monotonic() - self.idle_since > _KEPT_SECONDS:
            return False
        readable = select.poll()
        readable.register(self.sock, select.POLLIN)
        return not readable.poll(0)
