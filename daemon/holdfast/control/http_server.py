"""The connections to one control socket: accepted, counted by user with a reserve for root, served, or refused.

A refused one gets an answer if it can take it at once. Refusals go to the event log, which sums them up. On a socket that is
open to everybody there is a pause after each connection: they all pass through the event loop that the mount's requests
wait for.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import trio
from starlette.types import ASGIApp

from holdfast.control.callers import Caller
from holdfast.control.doors import Door
from holdfast.control.http_connection import Bounds, Connection
from holdfast.telemetry import EventLog

_REFUSED_PAUSE_SECONDS = 0.01
_BODY = b'{"code":"too-many-connections","errno":11,"message":"there are too many connections already: try again later"}'
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


@dataclass(frozen=True, slots=True)
class Caps:
    """Numbers of connections: all together, those of one user other than root, and how many of all only root may take."""

    total: int
    each_user: int
    for_root: int


class Admission:
    """The connections to one socket that exist now, counted by peer: a user's id, or an address."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._connections: Counter[int | str] = Counter()

    def admit(self, peer: int | str) -> bool:
        """Count one more connection of ``peer``, and say whether it may exist. Each one admitted must ``leave``."""
        taken = self._connections.total()
        if peer == 0:
            admitted = taken < self._caps.total
        else:
            admitted = not self._has_its_number(peer) and taken < self._caps.total - self._caps.for_root
        if admitted:
            self._connections[peer] += 1
        return admitted

    def who_gives_way(self, peer: int | str) -> int | str:
        """Return the peer that must lose a connection if ``peer`` is to have one more: itself, or whoever has most."""
        if self._has_its_number(peer) or not self._connections:
            return peer
        return max(self._connections, key=self._connections.__getitem__)

    def leave(self, peer: int | str) -> None:
        """Take back the count of a connection of ``peer`` that is gone."""
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def _has_its_number(self, peer: int | str) -> bool:
        return peer != 0 and self._connections[peer] >= self._caps.each_user


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules for serving a socket. ``name`` is its name in events; a pause of ``pause_seconds`` follows each connection.

    If ``newest_wins``, a connection too many is not refused: an older one is closed (``Admission.who_gives_way``).
    """

    name: str
    caps: Caps
    bounds: Bounds
    pause_seconds: float = 0.0
    newest_wins: bool = False


@dataclass(eq=False, slots=True)
class _Served:
    """A connection that is served."""

    caller: Caller
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class HttpServer:
    """Serves ``app`` to those who come in by ``door``, until cancelled."""

    def __init__(self, app: ASGIApp, door: Door, terms: Terms, events: EventLog) -> None:
        self._app = app
        self._door = door
        self._terms = terms
        self._events = events
        self._admission = Admission(terms.caps)
        self._served: dict[_Served, None] = {}  # the oldest first

    async def run(self) -> None:
        """Accept connections and serve them."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    connection, caller = await self._door.accept()
                    if self._admit(caller):
                        nursery.start_soon(self._serve, connection, self._begin(caller))
                        await trio.sleep(self._terms.pause_seconds)
                    else:
                        self._refuse(connection, caller)
                        await trio.sleep(_REFUSED_PAUSE_SECONDS)
        finally:
            self._door.close()

    def _admit(self, caller: Caller) -> bool:
        """Count a connection of ``caller``, and say whether it may exist. Where the newest wins, an older one may end."""
        peer = caller.counts_as
        if self._admission.admit(peer):
            return True
        if not self._terms.newest_wins:
            return False
        whose = self._admission.who_gives_way(peer)
        oldest = next(served for served in self._served if served.caller.counts_as == whose)
        self._end(oldest)
        self._events.emit("connections-refused", socket=self._terms.name, uid=oldest.caller.uid)
        return self._admission.admit(peer)

    def _begin(self, caller: Caller) -> _Served:
        served = _Served(caller)
        self._served[served] = None
        return served

    async def _serve(self, connection: socket.socket, served: _Served) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        try:
            with served.scope:
                await Connection(self._app, stream, served.caller, self._terms.bounds).serve()
        finally:
            connection.close()  # also if it had to give way before it was served at all
            if served in self._served:
                self._end(served)

    def _end(self, served: _Served) -> None:
        served.scope.cancel()
        del self._served[served]
        self._admission.leave(served.caller.counts_as)

    def _refuse(self, connection: socket.socket, caller: Caller) -> None:
        with connection, suppress(OSError):
            connection.send(_REFUSAL)
        self._events.emit("connections-refused", socket=self._terms.name, uid=caller.uid)
