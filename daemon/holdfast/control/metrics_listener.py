"""The page of metrics on TCP, where ``metrics.listen`` says so: one route, for whoever can connect.

An address that is taken must not keep the mount from being served, so the daemon goes on without the page, logs that once,
and tries again until the address is free: after a restart the daemon before this one may still have it.
"""

from __future__ import annotations

import logging
import socket

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from holdfast.config import TcpAddress
from holdfast.control.doors import OpenDoor
from holdfast.control.http_connection import Bounds
from holdfast.control.http_server import Caps, HttpServer, Terms
from holdfast.control.replies import Handler, guarded, no_such_route
from holdfast.control.tcp_peers import tcp_caller
from holdfast.telemetry import EventLog

_log = logging.getLogger("holdfast.control")
_TERMS = Terms(
    "metrics.listen",
    Caps(total=16, each_user=4, for_root=0),
    Bounds(stall_seconds=10.0),
    pause_seconds=0.001,
    newest_wins=True,
)
_PAUSE_SECONDS = 5.0
_BACKLOG = 128


class MetricsListener:
    """Serves ``page`` as ``/metrics`` on ``address``, until cancelled. Does nothing if that is empty."""

    def __init__(self, address: TcpAddress, page: Handler, events: EventLog) -> None:
        self._address = address
        self._app = Starlette(
            routes=[Route("/metrics", guarded(page), methods=["GET"])], exception_handlers={HTTPException: no_such_route}
        )
        self._events = events

    async def run(self) -> None:
        """Listen and serve."""
        if not self._address:
            return
        with await self._listener() as listener:
            await HttpServer(self._app, OpenDoor(listener, _TERMS.name, tcp_caller), _TERMS, self._events).run()

    async def _listener(self) -> socket.socket:
        was_told = False
        while True:
            try:
                return _listening(*self._address.parts)
            except OSError as problem:
                if not was_told:
                    _log.warning("metrics.listen: can't listen on %s: %s; trying again", self._address, problem.strerror)
                    self._events.emit("metrics-unavailable", address=str(self._address), problem=problem.strerror or "")
                was_told = True
            await trio.sleep(_PAUSE_SECONDS)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)  # with SO_REUSEADDR
    listener.setblocking(False)
    return listener
