"""The page on TCP, where ``ui.listen`` says so: for whoever has the token, and only with the requests that the page makes.

The daemon asks its own socket for it, and so could do anything. Therefore what is passed on is listed here: it is what a
member of the control group may do, without what is for processes of this node (working directories) and for root.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.config import UiSection
from holdfast.control.doors import OpenDoor
from holdfast.control.http_connection import Bounds
from holdfast.control.http_server import Caps, HttpServer, Terms
from holdfast.control.tcp_listeners import listening
from holdfast.control.tcp_peers import tcp_caller
from holdfast.telemetry import EventLog
from holdfast.ui.guard import Guard
from holdfast.ui.page import PLACE

_TERMS = Terms(
    "ui.listen",
    Caps(total=48, each_user=24, for_root=0),
    Bounds(stall_seconds=30.0, head_seconds=30.0),
    pause_seconds=0.001,
    newest_wins=True,
)
_ASKED = {
    *("status", "workdirs", "events", "entries", "entry", "why", "usage", "history", "transfers", "holdings"),
    *("spark/batches", "checkpoints", "checkpoints/plans", "checkpoints/plan"),
}
_ORDERED = {"prefetch", "pin", "unpin", "verify", "evict", "checkpoints/sweep", "checkpoints/execute"}


class OnlyThePage:
    """An ASGI application: ``app`` for what the page asks for, and a refusal of all else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        path = scope["raw_path"].decode("ascii")  # as it is passed on: nothing in it is decoded later
        route = path.removeprefix("/v1/") if path.startswith("/v1/") else None
        asks = scope["method"] in ("GET", "HEAD") and (path.startswith(PLACE) or route in _ASKED)
        if asks or (scope["method"] == "POST" and route in _ORDERED):
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("This is not served over TCP: ask the control socket.\n", 403)(scope, receive, send)


class PageListener:
    """Serves the page on ``section.listen``, until cancelled; does nothing if there is none."""

    def __init__(self, section: UiSection, control_socket: Path, events: EventLog) -> None:
        self._address = section.listen
        self._token = section.token
        self._socket = control_socket
        self._events = events

    async def run(self) -> None:
        """Listen and serve."""
        if not self._address:
            return
        from holdfast.ui.forwarding import Forwarder  # httpx takes a tenth of a second to import, and few have a page on TCP

        app = Guard(OnlyThePage(Forwarder(self._socket)), self._token, _is_ours)
        with await listening(self._address, "ui.listen", self._tell) as listener:
            await HttpServer(app, OpenDoor(listener, _TERMS.name, tcp_caller), _TERMS, self._events).run()

    def _tell(self, problem: str) -> None:
        self._events.emit("page-unavailable", address=str(self._address), problem=problem)


def _is_ours(host: str) -> bool:
    """Say whether a request's host is an address, or a name of this machine: no name that others can point here."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return True
    return name.lower() in ("localhost", socket.gethostname().lower())
