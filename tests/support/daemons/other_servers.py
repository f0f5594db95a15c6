"""Servers on a Unix socket that are no daemon, and say what they are told to."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def server(path: Path, serve: Callable[[socket.socket, int], None]) -> Iterator[list[int]]:
    """Let ``serve`` have each connection, with its number; yield the numbers of those that came."""
    came: list[int] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            came.append(len(came))
            with connection:
                serve(connection, came[-1])

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=accept)
        thread.start()
        yield came
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def answer(content: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(content), content)


def head(connection: socket.socket) -> bytes:
    """Read a request without content; nothing if the client has gone."""
    read = b""
    while not read.endswith(b"\r\n\r\n"):
        if not (some := connection.recv(1000)):
            return b""
        read += some
    return read


def request(connection: socket.socket) -> bytes:
    """Read a request with its content, if it has any; return its head."""
    read = b""
    while b"\r\n\r\n" not in read:
        if not (some := connection.recv(65536)):
            return b""
        read += some
    asked, _, content = read.partition(b"\r\n\r\n")
    length = re.search(rb"(?mi)^content-length: (\d+)", asked)
    left = int(length[1]) - len(content) if length else 0
    while left > 0 and (some := connection.recv(65536)):
        left -= len(some)
    return asked
