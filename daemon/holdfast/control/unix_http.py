"""HTTP/1.1 over a Unix socket, as much of it as the control client needs, with http.client.

httpx does more, and with all that it loads takes 10 MB and a twentieth of a second of each process that asks a daemon.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse

ERRORS = (OSError, HTTPException)
"""The errors of a request that got no answer, or not all of it."""
_KEPT_SECONDS = 2.0  # less than the daemon keeps an idle connection


def lines_of(answer: HTTPResponse) -> Iterator[bytes]:
    """Yield the lines of an answer as they come, without their ends. Raises ``IncompleteRead`` if it ends in the middle.

    Iterating over the answer itself takes a connection that is lost between two chunks for the end.
    """
    rest = b""
    while part := answer.read1():
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
    if rest:
        yield rest


class UnixHttp:
    """Connections to the server behind ``path``, made as they are needed, and kept for a moment after an answer.

    Several threads may ask at the same time, and another request may be sent while the answer to one is read. ``headers``
    go with each of them. Requests raise what is in ``ERRORS``, and ``TimeoutError`` if nothing comes for so many seconds.
    """

    def __init__(self, path: str, headers: Mapping[str, str]) -> None:
        self._path = path
        self._headers = dict(headers)
        self._idle: deque[_Connection] = deque()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def ask(self, method: str, target: str, content: bytes | None, timeout_seconds: float | None) -> tuple[int, bytes]:
        """Send a request; return the status and the content of the answer."""
        with self.asking(method, target, content, timeout_seconds) as answer:
            return answer.status, answer.read()

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
        connection, is_kept = self._connection(), False
        try:
            connection.set_timeout(timeout_seconds)
            is_sent = connection.sent(method, target, content, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            yield answer
            if is_sent and answer.isclosed() and connection.is_open:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
                is_kept = True
        finally:
            if not is_kept:
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


class _Connection(HTTPConnection):
    """A connection to the socket ``path``, which it makes with the first request."""

    def __init__(self, path: str) -> None:
        super().__init__("holdfast")
        self._path = path
        self.idle_since = 0.0

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def set_timeout(self, seconds: float | None) -> None:
        """Set for how long the server may be silent."""
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def sent(self, method: str, target: str, content: bytes | None, headers: Mapping[str, str]) -> bool:
        """Send a request; say whether all of it was taken. One that was refused before has an answer that says why."""
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
