"""Floods of the control sockets: many connections, slow ones, ones that never end. Nobody else may notice."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.daemons.node import Node, wait_until
from tests.support.users.hostile_clients import attacking, connected, exchange, get, wait_closed
from tests.support.users.privileges import ALICE, MALLORY, User

_REQUEST = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n"
_MANY = 420


@pytest.fixture
def status_socket(node: Node) -> Path:
    """The socket that is open to everybody."""
    return node.socket.with_name("status.sock")


def descriptors(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def resident_kib(node: Node) -> int:
    lines = Path(f"/proc/{node.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def asking_and_never_reading(path: Path, connections: int) -> Callable[[], int]:
    held: list[socket.socket] = []

    def attack() -> int:
        for _ in range(connections):
            held.append(connected(path))
            held[-1].setblocking(False)
            try:
                for _ in range(50):
                    held[-1].send(_REQUEST * 20)
            except OSError:
                continue
        return len(held)

    return attack


@pytest.mark.promise("floods")
def test_who_asks_and_never_reads_takes_no_descriptors_from_others(node: Node, status_socket: Path) -> None:
    """Gain: with 420 connections the daemon runs out of descriptors, and opens by all others fail with EMFILE."""
    before, memory_kib = descriptors(node), resident_kib(node)
    with attacking(MALLORY, asking_and_never_reading(status_socket, _MANY)) as connections:
        assert connections == _MANY
        assert get(node.socket, "/v1/status")[0] == 200
        assert descriptors(node) < before + 100
        assert resident_kib(node) < memory_kib + 20_000
        ALICE.do(lambda: check_answers(status_socket))
        node.wait_event("connections-refused", uid=MALLORY.uid)


def check_answers(path: Path) -> None:
    assert get(path, "/v1/status")[0] == 200


@pytest.mark.promise("floods")
def test_a_user_has_a_number_of_connections_and_root_a_reserve(node: Node, status_socket: Path) -> None:
    """Gain: with several accounts at once, no place is left for root, who wants to see what is going on."""
    crowd = [User(60_700 + number, 60_700) for number in range(12)]

    def attack() -> list[int]:
        held.extend(connected(status_socket) for _ in range(30))
        return [len(held)]

    held: list[socket.socket] = []
    with ExitStack() as attacks:
        for user in crowd:
            attacks.enter_context(attacking(user, attack))
        assert get(status_socket, "/v1/status")[0] == 200
        assert get(node.socket, "/v1/status")[0] == 200


def test_half_a_request_does_not_keep_a_connection(status_socket: Path) -> None:
    """Gain: connections that cost the attacker nothing and are held for ever (Slowloris)."""
    beginnings = [
        b"",
        b"GET /v1/sta",
        b"GET /v1/status HTTP/1.1\r\nhost: x\r\nx-",
        b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc",
    ]
    with ExitStack() as held:
        channels = [held.enter_context(connected(status_socket)) for _ in beginnings]
        for channel, beginning in zip(channels, beginnings, strict=True):
            channel.sendall(beginning)
        assert [b" 200 " in wait_closed(channel) for channel in channels] == [False] * len(beginnings)


def test_a_request_that_trickles_in_is_ended(status_socket: Path) -> None:
    """Gain: as above, past a time-out that begins anew with every byte."""
    with connected(status_socket) as channel:
        channel.sendall(b"GET /v1/status HTTP/1.1\r\n")
        channel.settimeout(0.5)
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                channel.sendall(b"x: y\r\n")
                with suppress(TimeoutError):
                    assert channel.recv(100) == b""
                    break


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        (b"GET /v1/status HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 1_000_000 + b"\r\n\r\n", 431),
        (b"GET /v1/status?" + b"x" * 1_000_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET /v1/status HTTP/1.1\r\n" + b"a: b\r\n" * 100_000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100 + b"\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabc", 400),
        (b"GET /v1/status HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (b"GET /v1/status HTTP/9.9\r\nhost: x\r\n\r\n", 505),
        (b"GET /v1/status HTTP/1.1\r\nhost: x\r\ntransfer-encoding: rot13\r\n\r\n", 501),
    ],
)
def test_nonsense_is_refused_in_few_words(node: Node, request_text: bytes, code: int) -> None:
    """Gain: memory for a head without end; two readers of one request who see different ones; a fault in the log."""
    memory_kib = resident_kib(node)
    for path in (node.socket.with_name("status.sock"), node.socket):
        reply = exchange(path, request_text)
        assert reply.startswith(b"HTTP/1.1 %d " % code), reply[:200]
        assert len(reply) < 1000
    assert resident_kib(node) < memory_kib + 10_000


@pytest.mark.parametrize(
    "framing",
    [
        (b"content-length: 1000000000\r\n", b"x" * 65536),
        (b"transfer-encoding: chunked\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ],
)
def test_a_body_without_end_is_not_read_to_its_end(node: Node, framing: tuple[bytes, bytes]) -> None:
    """Gain: the daemon keeps what is sent in memory until it has none."""
    memory_kib = resident_kib(node)
    head, chunk = framing
    with connected(node.socket) as channel:
        channel.sendall(b"POST /v1/pin HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(2000):
                channel.sendall(chunk)
        assert b" 413 " in wait_closed(channel)
    assert resident_kib(node) < memory_kib + 20_000


def test_a_client_that_goes_in_the_middle_of_a_request_is_no_fault(node: Node) -> None:
    """Gain: a log full of tracebacks, in which nobody finds anything (the fixture complains about faults in the log)."""
    for text in (b"POST /v1/pin HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc", _REQUEST[:20], _REQUEST):
        for _ in range(20):
            with connected(node.socket) as channel:
                channel.sendall(text)
    assert get(node.socket, "/v1/status")[0] == 200


def test_ten_thousand_connects_leave_nothing(node: Node, status_socket: Path) -> None:
    """Gain: something remains of each connection, and one day there is no room."""
    before = descriptors(node)

    def attack() -> int:
        for number in range(10_000):
            channel = connected(status_socket)
            if number % 3 == 0:
                channel.send(_REQUEST)
            channel.close()
        return 1

    memory_kib = resident_kib(node)
    with attacking(MALLORY, attack):
        assert get(node.socket, "/v1/status")[0] == 200
    wait_until(lambda: descriptors(node) <= before + 2)
    assert resident_kib(node) < memory_kib + 20_000


def test_requests_sent_ahead_wait_where_they_are(status_socket: Path) -> None:
    """Gain: a queue of requests that one user fills in the daemon's memory. They are answered one after the other."""
    last = _REQUEST.replace(b"host", b"connection: close\r\nhost")
    assert exchange(status_socket, _REQUEST * 50 + last).count(b"HTTP/1.1 200 ") == 51


def test_a_connection_serves_one_request_after_the_other(status_socket: Path) -> None:
    with connected(status_socket) as channel:
        for _ in range(5):
            channel.sendall(_REQUEST)
            reply = b""
            while b"\r\n\r\n" not in reply or not reply.endswith(b"}"):
                reply += channel.recv(65536)
            assert reply.startswith(b"HTTP/1.1 200 ")


def test_who_asks_without_a_pause_does_not_hold_the_mount_up(status_socket: Path) -> None:
    """Gain: whoever asks for the status in a loop has the event loop that all others' file operations wait for."""
    asked = 100
    began = time.monotonic()
    with connected(status_socket) as channel:
        for _ in range(asked):
            channel.sendall(_REQUEST)
            channel.recv(65536)
    assert asked / (time.monotonic() - began) < 150, "answers a second"
