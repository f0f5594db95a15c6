"""A TCP proxy that makes a server far away: whatever passes arrives later by a fixed time, in both directions.

Bytes keep their order and nothing limits their rate; a new connection costs a round trip of its own. It runs as a process,
so that it competes with nobody for an interpreter: ``with delaying(endpoint, 0.015) as far: …``, or
``python -m tests.support.delaying_proxy HOST PORT SECONDS``, which prints the port it listens on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import trio

_CHUNK_BYTES = 2**18
_CHUNKS_UNDER_WAY = 1024


@contextmanager
def delaying(endpoint: str, seconds: float) -> Iterator[str]:
    """Yield an endpoint that leads to ``endpoint``, an HTTP URL, with so much delay each way."""
    parts = urlsplit(endpoint)
    command = [sys.executable, "-m", "tests.support.delaying_proxy", str(parts.hostname), str(parts.port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


async def serve(host: str, port: int, seconds: float) -> None:
    """Listen on a free port, print it, and pass on what comes until cancelled."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(partial(_connection, host, port, seconds), listeners)


async def _connection(host: str, port: int, seconds: float, client: trio.SocketStream) -> None:
    try:
        async with await trio.open_tcp_stream(host, port) as server, client, trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, client, server, seconds, 2 * seconds)
            nursery.start_soon(_pass_on, server, client, seconds, 0.0)
    except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        pass  # one side has gone; the other one sees its connection closed


async def _pass_on(source: trio.SocketStream, sink: trio.SocketStream, seconds: float, handshake_seconds: float) -> None:
    not_before = trio.current_time() + handshake_seconds
    sender, receiver = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS_UNDER_WAY)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_deliver, receiver, sink)
        async with sender:
            while data := bytes(await source.receive_some(_CHUNK_BYTES)):
                await sender.send((max(not_before, trio.current_time()) + seconds, data))


async def _deliver(receiver: trio.MemoryReceiveChannel[tuple[float, bytes]], sink: trio.SocketStream) -> None:
    async for due, data in receiver:
        await trio.sleep_until(due)
        await sink.send_all(data)
    await sink.send_eof()


if __name__ == "__main__":
    trio.run(serve, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
