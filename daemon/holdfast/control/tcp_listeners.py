"""Sockets that listen on TCP, for ``metrics.listen`` and ``ui.listen``.

An address that is taken must not keep the mount from being served, so the daemon goes on without what would be served there,
tells that once, and tries again until the address is free: after a restart the daemon before this one may still have it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import trio

from holdfast.config import TcpAddress

_log = logging.getLogger("holdfast.control")
_PAUSE_SECONDS = 5.0
_BACKLOG = 128


async def listening(address: TcpAddress, key: str, tell: Callable[[str], None]) -> socket.socket:
    """Return a socket that listens on ``address``, the value of ``key``; ``tell`` why, once, if it has to wait for that."""
    was_told = False
    while True:
        try:
            return _opened(*address.parts)
        except OSError as problem:
            if not was_told:
                _log.warning("%s: can't listen on %s: %s; trying again", key, address, problem.strerror)
                tell(problem.strerror or "")
            was_told = True
        await trio.sleep(_PAUSE_SECONDS)


def _opened(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)  # with SO_REUSEADDR
    listener.setblocking(False)
    return listener
