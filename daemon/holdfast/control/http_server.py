"""The connections to one control socket: accepted, counted, served, and refused when there are too many.

A refused one gets an answer if it can take it at once. Refusals go to the event log, which sums them up. On a socket that is
open to everybody there is a pause after each connection: they all pass through the event loop that the mount's requests
wait for.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio
from starlette.types import ASGIApp

from holdfast.control.admission import Admission, Caps
from holdfast.control.callers import Caller, caller_of
from holdfast.control.http_connection import Bounds, Connection
from holdfast.telemetry import EventLog

_log = logging.getLogger("holdfast.control")
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EXHAUSTED_PAUSE_SECONDS = 0.1
_REFUSED_PAUSE_SECONDS = 0.01
_BODY = b'{"code":"too-many-connections","errno":11,"message":"there are too many connections already: try again later"}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a socket is served: ``name`` is for events, ``pause_seconds`` follows each connection."""

    name: str
    caps: Caps
    bounds: Bounds
    pause_seconds: float = 0.0


class HttpServer:
    """Serves ``app`` on ``listener``, a listening socket, until cancelled. The caller closes the listener.

    ``identify`` says who has made a connection. Raises ``OSError`` if that is gone.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        terms: Terms,
        events: EventLog,
        identify: Callable[[socket.socket], Caller] = caller_of,
    ) -> None:
        self._app = app
        self._identify = identify
        self._listener = listener
        self._terms = terms
        self._events = events
        self._admission = Admission(terms.caps)

    async def run(self) -> None:
        """Accept connections and serve them."""
        async with trio.open_nursery() as nursery:
            while True:
                connection = await self._accept()
                try:
                    caller = self._identify(connection)
                except OSError:  # gone already
                    connection.close()
                    continue
                if self._admission.admit(caller.uid):
                    nursery.start_soon(self._serve, connection, caller)
                    await trio.sleep(self._terms.pause_seconds)
                else:
                    self._refuse(connection, caller)
                    await trio.sleep(_REFUSED_PAUSE_SECONDS)

    async def _accept(self) -> socket.socket:
        was_exhausted = False
        while True:
            await trio.lowlevel.wait_readable(self._listener)
            try:
                connection = self._listener.accept()[0]
            except BlockingIOError:
                continue
            except OSError as problem:
                if problem.errno not in _EXHAUSTED:
                    raise
                if not was_exhausted:
                    _log.warning("can't accept connections on %s: %s", self._terms.name, problem.strerror)
                was_exhausted = True
                await trio.sleep(_EXHAUSTED_PAUSE_SECONDS)
                continue
            connection.setblocking(False)
            return connection

    async def _serve(self, connection: socket.socket, caller: Caller) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        try:
            await Connection(self._app, stream, caller, self._terms.bounds).serve()
        finally:
            self._admission.leave(caller.uid)

    def _refuse(self, connection: socket.socket, caller: Caller) -> None:
        with connection, suppress(OSError):
            connection.send(_REFUSAL)
        self._events.emit("connections-refused", socket=self._terms.name, uid=caller.uid)
