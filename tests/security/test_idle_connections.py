"""Connections over TCP that are held for nothing: whoever has a reason to ask still gets an answer."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.stores.servers import free_port
from tests.support.users.hostile_clients import attacking
from tests.support.users.privileges import ALICE, MALLORY
from tests.support.users.stalls import bystander

TOKEN = "0123456789abcdef"
_MANY = 200
_REQUEST = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status(port: int, target: str) -> bytes:
    with connected(port) as channel:
        channel.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        return channel.recv(12)


def silent(port: int) -> Callable[[], int]:
    held: list[socket.socket] = []

    def attack() -> int:
        held.extend(connected(port) for _ in range(_MANY))
        return len(held)

    return attack


def asking_and_never_reading(port: int) -> Callable[[], int]:
    held: list[socket.socket] = []

    def attack() -> int:
        for _ in range(_MANY):
            held.append(connected(port))
            held[-1].sendall(_REQUEST * 20)
        return len(held)

    return attack


@pytest.fixture(params=["metrics", "ui"])
def place(request: pytest.FixtureRequest, make_node: NodeFactory) -> tuple[Node, int, str]:
    """A node, a port of it, and what may be asked for there."""
    port = free_port()
    settings = {f"{request.param}__listen": f"127.0.0.1:{port}"}
    if request.param == "ui":
        settings["ui__token"] = TOKEN
    node = make_node(**settings).start()
    wait_until(lambda: listens(port))
    return node, port, "/metrics" if request.param == "metrics" else f"/{TOKEN}/ui/"


@pytest.mark.parametrize("attack", [silent, asking_and_never_reading])
def test_connections_that_one_user_holds_keep_nobody_from_an_answer(
    place: tuple[Node, int, str], attack: Callable[[int], Callable[[], int]]
) -> None:
    """Gain: no monitoring and no page, for as long as somebody holds a few connections."""
    node, port, target = place
    with bystander(node) as waits, attacking(MALLORY, attack(port)) as held:
        assert held == _MANY
        for _ in range(5):
            ALICE.do(lambda: check_answer(port, target))
            check_answer(port, target)
    waits.check()


def check_answer(port: int, target: str) -> None:
    assert status(port, target) == b"HTTP/1.1 200"
