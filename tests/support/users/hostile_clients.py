"""Clients of the control sockets that mean no good: connections of another user, opened and kept while a test looks on."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.users.attackers import kill
from tests.support.users.privileges import User

_SECONDS = 60.0


@contextmanager
def attacking(user: User, attack: Callable[[], object]) -> Iterator[Any]:
    """Run ``attack`` as ``user`` in a process of its own; yield what it returns (as JSON) once it has. What it holds stays
    open until the block ends: ``attack`` must return an object that keeps it, or leave it in a closure.
    """

    def attacks(writer: int) -> None:
        os.write(writer, json.dumps({"result": attack()}).encode())
        os.close(writer)
        signal.pause()

    pid, reader = user.fork(attacks)
    try:
        with open(reader) as channel:
            answer = channel.read()
        assert answer.startswith("{"), answer  # or it is a traceback
        yield json.loads(answer)["result"]
    finally:
        kill(pid)


def connected(path: Path) -> socket.socket:
    """Return a connection to the socket at ``path``."""
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect(str(path))  # waits while the backlog is full, which a socket with a time-out does not
    except OSError:
        channel.close()
        raise
    channel.settimeout(_SECONDS)
    return channel


def exchange(path: Path, request: bytes) -> bytes:
    """Send ``request``, and return all that comes until the daemon closes the connection."""
    with connected(path) as channel:
        with suppress(BrokenPipeError, ConnectionResetError):  # what it said before can still be read
            channel.sendall(request)
        return _rest(channel)


def get(path: Path, route: str) -> tuple[int, Any]:
    """Ask for ``route``; return the status and the decoded answer."""
    head, _, body = exchange(path, b"GET %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % route.encode()).partition(
        b"\r\n\r\n"
    )
    return int(head.split()[1]), json.loads(body)


def wait_closed(channel: socket.socket) -> bytes:
    """Wait until the daemon closes the connection; return what it has said before."""
    return _rest(channel)


def _rest(channel: socket.socket) -> bytes:
    parts = []
    with suppress(ConnectionResetError):
        while part := channel.recv(65536):
            parts.append(part)
    return b"".join(parts)
