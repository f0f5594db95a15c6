"""A proxy between a client and an S3 server that a test can tell to be slow, to fail, to lie, or to be gone.

It forwards whole HTTP requests, unchanged but for the headers that concern one connection, so that signatures stay valid.
A fault that is asked for strikes the next matching request, once or as often as said; faults strike in the order in which
they were asked for. All methods may be called from any thread. What goes wrong in here fails the test at ``close``.
"""

from __future__ import annotations

import enum
import http.client
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.stores.servers import reserved_port

_ONE_CONNECTION_ONLY = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_UPSTREAM_SECONDS = 60.0
_POLL_SECONDS = 0.01


class _Kind(enum.Enum):
    PASS = enum.auto()
    ANSWER = enum.auto()
    LOSE = enum.auto()
    TRUNCATE = enum.auto()
    SHORTEN = enum.auto()


@dataclass
class _Fault:
    kind: _Kind
    method: str | None
    matching: str
    left: int
    status: int = 0
    body: bytes = b""

    def concerns(self, method: str, target: str) -> bool:
        return self.left > 0 and self.method in (None, method) and self.matching in target


@dataclass(frozen=True)
class Seen:
    """A request that came: ``target`` is path and query as the client wrote them."""

    method: str
    target: str


class FaultProxy:
    """A proxy to ``upstream``, an endpoint as in ``http://127.0.0.1:7070``. Use it as a context manager.

    ``delay_seconds`` is added to every answer, also to one that a fault makes up.
    """

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or http.client.HTTP_PORT)
        self.delay_seconds = 0.0
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._faults: list[_Fault] = []
        self._connections: set[socket.socket] = set()
        self._problems: list[BaseException] = []
        self._closing = threading.Event()
        self._server: _Server | None = None
        self._reservation = reserved_port()
        self._address: tuple[str, int] = self._reservation.getsockname()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """Where clients reach the server through the proxy."""
        return f"http://127.0.0.1:{self._address[1]}"

    def answer(
        self, status: int, *, times: int = 1, method: str | None = None, matching: str = "", body: bytes = b""
    ) -> None:
        """Answer requests with ``status`` and ``body``; the server does not hear of them."""
        self._add(_Fault(_Kind.ANSWER, method, matching, times, status, body))

    def let_pass(self, *, times: int = 1, method: str | None = None, matching: str = "") -> None:
        """Let requests through, so that what is asked for after this strikes later ones."""
        self._add(_Fault(_Kind.PASS, method, matching, times))

    def lose_answers(self, *, times: int = 1, method: str | None = None, matching: str = "") -> None:
        """Let the server carry requests out, then close the connection instead of answering."""
        self._add(_Fault(_Kind.LOSE, method, matching, times))

    def truncate_answers(self, *, times: int = 1, method: str | None = None, matching: str = "") -> None:
        """Close the connection after half of the answer's body."""
        self._add(_Fault(_Kind.TRUNCATE, method, matching, times))

    def shorten_answers(self, *, times: int = 1, method: str | None = None, matching: str = "") -> None:
        """Send half of the answer's body, and say that this was all of it."""
        self._add(_Fault(_Kind.SHORTEN, method, matching, times))

    def heal(self) -> None:
        """Forget the faults that have not struck, and the delay."""
        with self._changed:
            self._faults.clear()
        self.delay_seconds = 0.0

    def faults_left(self) -> int:
        """Return how many times faults have still to strike."""
        with self._changed:
            return sum(fault.left for fault in self._faults)

    def down(self) -> None:
        """Refuse connections, and cut those that there are, until ``up``."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        with self._changed:
            connections = list(self._connections)
        for connection in connections:
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()

    def up(self) -> None:
        """Take connections, on the same port as ever."""
        if self._server is None:
            self._server = _Server(self._address, self)
            threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True).start()

    def close(self) -> None:
        """End, and complain of what went wrong in here."""
        self._closing.set()
        self.down()
        self._reservation.close()
        assert not self._problems, f"the proxy failed: {self._problems!r}"

    def requests(self, method: str | None = None, matching: str = "") -> list[Seen]:
        """Return the requests that came so far, struck by faults or not."""
        with self._changed:
            return [seen for seen in self._seen if method in (None, seen.method) and matching in seen.target]

    def wait_requests(
        self, count: int, method: str | None = None, matching: str = "", *, timeout_seconds: float = 60.0
    ) -> list[Seen]:
        """Wait until ``count`` such requests have come; return them."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while len(found := self.requests(method, matching)) < count:
                assert self._changed.wait(deadline - time.monotonic()), (
                    f"{len(found)} of {count} requests in {timeout_seconds} s"
                )
        return found

    def _add(self, fault: _Fault) -> None:
        with self._changed:
            self._faults.append(fault)

    def _note(self, method: str, target: str) -> _Fault | None:
        with self._changed:
            self._seen.append(Seen(method, target))
            self._changed.notify_all()
            fault = next((fault for fault in self._faults if fault.concerns(method, target)), None)
            if fault is not None:
                fault.left -= 1
        return fault


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the handlers
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.proxy._changed:  # here, before its thread runs: ``down`` must miss none
            self.proxy._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.proxy._changed:
            self.proxy._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        problem = sys.exception()
        if not isinstance(problem, ConnectionError | None):  # clients go when they like
            self.proxy._problems.append(problem)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Say nothing: tests ask ``requests``."""

    def _handle(self) -> None:
        proxy = self.server.proxy
        assert "chunked" not in self.headers.get("Transfer-Encoding", ""), "the proxy takes bodies of known length only"
        announced = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(announced)
        if len(body) < announced:  # the client has died meanwhile: this is no request
            self.close_connection = True
            return
        delay_seconds = proxy.delay_seconds  # before anybody hears of the request, and sets it for the next one
        fault = proxy._note(self.command, self.path)
        if fault is not None and fault.kind is _Kind.ANSWER:
            proxy._closing.wait(delay_seconds)
            self._reply(fault.status, [], fault.body, len(fault.body))
            return
        status, headers, content, length = self._ask_upstream(body)
        proxy._closing.wait(delay_seconds)
        if fault is None or fault.kind is _Kind.PASS:
            self._reply(status, headers, content, length)
            return
        self.close_connection = True
        if fault.kind is _Kind.TRUNCATE:
            self._reply(status, headers, content[: len(content) // 2], length)
        elif fault.kind is _Kind.SHORTEN:
            self._reply(status, headers, content[: len(content) // 2], len(content) // 2)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 the names are http.server's

    def _ask_upstream(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes, int]:
        connection = http.client.HTTPConnection(*self.server.proxy.upstream, timeout=_UPSTREAM_SECONDS)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _ONE_CONNECTION_ONLY:
                    connection.putheader(name, value)
            if "Content-Length" in self.headers:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            content = response.read()
            length = int(response.headers.get("Content-Length", len(content)))  # of a HEAD: not what follows
            return response.status, response.getheaders(), content, length
        finally:
            connection.close()

    def _reply(self, status: int, headers: list[tuple[str, str]], content: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _ONE_CONNECTION_ONLY:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
