"""The proxy that makes the benchmark's store far away: all bytes, in order, later."""

from __future__ import annotations

from urllib.parse import urlsplit

import trio

from tests.support.stores.delaying_proxy import delaying

_DELAY_SECONDS = 0.02
_BYTES = bytes(range(256)) * 20_000
_BYTES_PER_SECOND = 10 * len(_BYTES)


async def _echo(stream: trio.SocketStream) -> None:
    async with stream:
        while data := await stream.receive_some():
            await stream.send_all(data)


async def _receive(stream: trio.SocketStream, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        received += await stream.receive_some()
    return bytes(received)


async def test_bytes_come_back_whole_and_a_round_trip_later() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, _echo, listeners)
        with delaying(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", _DELAY_SECONDS) as far:
            async with await trio.open_tcp_stream("127.0.0.1", urlsplit(far).port or 0) as stream:
                began = trio.current_time()
                await stream.send_all(b"first")
                assert await _receive(stream, 5) == b"first"
                assert trio.current_time() - began >= 3 * _DELAY_SECONDS, "with the handshake's round trip"
                began = trio.current_time()
                async with trio.open_nursery() as transfer:
                    transfer.start_soon(stream.send_all, _BYTES)
                    assert await _receive(stream, len(_BYTES)) == _BYTES
                assert trio.current_time() - began >= 2 * _DELAY_SECONDS
        nursery.cancel_scope.cancel()


async def test_connections_share_what_the_line_carries() -> None:
    async def echo_once(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as transfer:
            transfer.start_soon(stream.send_all, _BYTES)
            assert await _receive(stream, len(_BYTES)) == _BYTES

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, _echo, listeners)
        endpoint = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        with delaying(endpoint, 0.0, _BYTES_PER_SECOND) as narrow:
            began = trio.current_time()
            async with trio.open_nursery() as clients:
                for _ in range(2):
                    clients.start_soon(echo_once, urlsplit(narrow).port or 0)
            assert trio.current_time() - began >= 2 * len(_BYTES) / _BYTES_PER_SECOND
        nursery.cancel_scope.cancel()
