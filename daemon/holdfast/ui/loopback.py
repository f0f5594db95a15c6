"""A way for one user's browser to the control socket: a port of the loopback interface, with that user's rights.

It lives as long as the command that runs it. Whoever has its address may ask of the daemon what its user may.
"""

from __future__ import annotations

import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.callers import Caller
from holdfast.control.doors import OpenDoor
from holdfast.control.http_connection import Bounds
from holdfast.control.http_server import Caps, HttpServer, Terms
from holdfast.errors import ConfigurationError
from holdfast.telemetry import EventLog
from holdfast.ui.forwarding import Forwarder
from holdfast.ui.guard import Guard
from holdfast.ui.page import PLACE

_ADDRESS = "127.0.0.1"
_TOKEN_BYTES = 32
_SOMEBODY = Caller(uid=-1, gid=-1, groups=frozenset())  # TCP does not tell
_TERMS = Terms("page", Caps(total=64, each_user=64, for_root=0), Bounds(stall_seconds=60.0, head_seconds=60.0))


@dataclass(frozen=True, slots=True)
class Loopback:
    """A listening port, and the secret in its address."""

    listener: socket.socket
    token: str

    @classmethod
    def listening(cls, port: int) -> Loopback:
        """Listen on ``port``, or on any that is free if that is 0. Raises ``ConfigurationError``."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((_ADDRESS, port))
        except OSError as problem:
            listener.close()
            raise ConfigurationError(f"can't listen on port {port}: {problem.strerror}; name another with --port") from None
        listener.listen()
        listener.setblocking(False)
        return cls(listener, secrets.token_urlsafe(_TOKEN_BYTES))

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{_ADDRESS}:{self._port}/{self.token}{PLACE}"

    async def serve(self, control_socket: Path) -> None:
        """Pass requests on to ``control_socket`` until cancelled."""
        app = Guard(Forwarder(control_socket), self.token, self._is_ours)
        door = OpenDoor(self.listener, _TERMS.name, lambda _: _SOMEBODY)
        with self.listener:
            await HttpServer(app, door, _TERMS, EventLog(time.time)).run()

    @property
    def _port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _is_ours(self, host: str) -> bool:
        return host in (f"{_ADDRESS}:{self._port}", f"localhost:{self._port}")
