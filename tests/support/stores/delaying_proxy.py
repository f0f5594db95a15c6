"""A TCP proxy that makes a server far away: whatever passes arrives later by a fixed time, in both directions.

Bytes keep their order; a new connection costs a round trip of its own. With a bandwidth, all connections together share so
much in each direction, as they do behind one network card. It runs as a process, so that it competes with nobody for an
interpreter: ``with delaying(endpoint, 0.015) as far: …``, or ``python -m tests.support.stores.delaying_proxy HOST PORT
SECONDS BYTES_PER_SECOND LISTEN_PORT``, which prints the port it listens on. It ends with the thread that has started it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import trio

from tests.support.processes.children import DIES_WITH_US

_CHUNK_BYTES = 2**18
_CHUNKS_UNDER_WAY = 1024


@contextmanager
def delaying(endpoint: str, seconds: float, bytes_per_second: int = 0) -> Iterator[str]:
    """Yield an endpoint that leads to ``endpoint``, an HTTP URL, with so much delay each way. 0: no limit of bytes."""
    with start(endpoint, seconds, bytes_per_second) as process:
        try:
            yield f"http://127.0.0.1:{listening_port(process)}"
        finally:
            process.kill()


def start(endpoint: str, seconds: float, bytes_per_second: int = 0, port: int = 0) -> subprocess.Popen[str]:
    """Start a proxy to ``endpoint`` that listens on ``port`` (0: any free one)."""
    parts = urlsplit(endpoint)
    arguments = (parts.hostname, parts.port, seconds, bytes_per_second, port)
    command = [*DIES_WITH_US, sys.executable, "-m", "tests.support.stores.delaying_proxy", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def listening_port(process: subprocess.Popen[str]) -> int:
    """Wait until the proxy listens; return its port."""
    assert process.stdout is not None
    return int(process.stdout.readline())


class _Direction:
    """One direction of the line: when what is sent now arrives."""

    def __init__(self, seconds: float, bytes_per_second: int) -> None:
        self._seconds = seconds
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def arrival(self, size_bytes: int, not_before: float) -> float:
        """Return when so many bytes have arrived that are sent now, behind all others, and not before that time."""
        self._free_at = max(trio.current_time(), self._free_at)
        if self._bytes_per_second:
            self._free_at += size_bytes / self._bytes_per_second
        return max(self._free_at, not_before) + self._seconds


async def serve(host: str, port: int, seconds: float, bytes_per_second: int, listen_port: int) -> None:
    """Listen, print the port, and pass on what comes until cancelled."""
    listeners = await trio.open_tcp_listeners(listen_port, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    there, back = _Direction(seconds, bytes_per_second), _Direction(seconds, bytes_per_second)
    await trio.serve_listeners(partial(_connection, host, port, there, back, 2 * seconds), listeners)


async def _connection(
    host: str, port: int, there: _Direction, back: _Direction, handshake_seconds: float, client: trio.SocketStream
) -> None:
    try:
        async with await trio.open_tcp_stream(host, port) as server, client, trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, client, server, there, handshake_seconds)
            nursery.start_soon(_pass_on, server, client, back, 0.0)
    except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        pass  # one side has gone; the other one sees its connection closed


async def _pass_on(
    source: trio.SocketStream, sink: trio.SocketStream, direction: _Direction, handshake_seconds: float
) -> None:
    not_before = trio.current_time() + handshake_seconds
    sender, receiver = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_UNDER_WAY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_deliver, receiver, sink)
        async with sender:
            while data := bytes(await source.receive_some(_CHUNK_BYTES)):
                await sender.send((direction.arrival(len(data), not_before), data))


async def _deliver(receiver: trio.MemoryReceiveChannel[tuple[float, bytes]], sink: trio.SocketStream) -> None:
    async for due, data in receiver:
        await trio.sleep_until(due)
        await sink.send_all(data)
    await sink.send_eof()


if __name__ == "__main__":
    trio.run(serve, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
