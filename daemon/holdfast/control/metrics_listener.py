"""The page of metrics on TCP, where ``metrics.listen`` says so: one route, for whoever can connect."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from holdfast.config import TcpAddress
from holdfast.control.doors import OpenDoor
from holdfast.control.http_connection import Bounds
from holdfast.control.http_server import Caps, HttpServer, Terms
from holdfast.control.replies import Handler, guarded, no_such_route
from holdfast.control.tcp_listeners import listening
from holdfast.control.tcp_peers import tcp_caller
from holdfast.telemetry import EventLog

_TERMS = Terms(
    "metrics.listen",
    Caps(total=16, each_user=4, for_root=0),
    Bounds(stall_seconds=10.0),
    pause_seconds=0.001,
    newest_wins=True,
)


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
        with await listening(self._address, "metrics.listen", self._tell) as listener:
            await HttpServer(self._app, OpenDoor(listener, _TERMS.name, tcp_caller), _TERMS, self._events).run()

    def _tell(self, problem: str) -> None:
        self._events.emit("metrics-unavailable", address=str(self._address), problem=problem)
