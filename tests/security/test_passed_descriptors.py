"""Descriptors that users send over the daemon's sockets, of files whose last close takes as long as they like."""

from __future__ import annotations

import array
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.children import children_of
from tests.support.users.hostile_clients import attacking, connected, get
from tests.support.users.privileges import ALICE, MALLORY, User
from tests.support.users.stalls import bystander

_REQUEST = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n"
_LINGER = struct.pack("ii", 1, 300)
_EACH_USER = 16
_ROOT = User(0, 0)


def lingering() -> socket.socket:
    """Return a TCP socket whose last close waits for minutes: for a peer to read what it never reads."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        channel, _ = listener.accept()
    os.set_inheritable(peer.detach(), False)  # stays open until the attacker ends
    channel.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            channel.send(b"x" * 65536)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    return channel


def pass_on(channel: socket.socket, passed: socket.socket, data: bytes, flags: int = 0) -> int:
    """Send ``passed`` so that only the receiver has it, who must not read yet; say whether the kernel has let it through."""
    try:
        channel.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed.fileno()]))], flags)
    except (PermissionError, BrokenPipeError, ConnectionResetError):  # refused by the kernel, or the daemon is done with us
        passed.detach()  # to close it would take minutes
        return 0
    passed.close()
    return 1


def with_a_request(path: Path, kept: list[socket.socket]) -> int:
    kept.append(connected(path))
    return pass_on(kept[-1], lingering(), _REQUEST)


def behind_a_request_that_waits(path: Path, kept: list[socket.socket]) -> int:
    kept.append(connected(path))
    kept[-1].send(b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
    return pass_on(kept[-1], lingering(), b"x")


def and_away(path: Path, kept: list[socket.socket]) -> int:
    del kept
    with connected(path) as channel:
        return pass_on(channel, lingering(), b"x")


def out_of_band(path: Path, kept: list[socket.socket]) -> int:
    kept.append(connected(path))
    passed = pass_on(kept[-1], lingering(), b"x", socket.MSG_OOB)
    kept[-1].send(_REQUEST)
    return passed


def in_a_socket_in_a_socket(path: Path, kept: list[socket.socket]) -> int:
    kept.append(connected(path))
    inner = lingering()
    for _ in range(3):
        here, there = socket.socketpair()
        pass_on(here, inner, b"x")
        here.close()
        inner = there
    return pass_on(kept[-1], inner, _REQUEST)


def more_than_connections_are_allowed(path: Path, kept: list[socket.socket]) -> int:
    return sum(with_a_request(path, kept) for _ in range(3 * _EACH_USER))


ATTACKS = [
    with_a_request,
    behind_a_request_that_waits,
    and_away,
    out_of_band,
    in_a_socket_in_a_socket,
    more_than_connections_are_allowed,
]


@pytest.fixture(params=["this kernel", "before Linux 6.16"])
def any_node(request: pytest.FixtureRequest, make_node: NodeFactory) -> Node:
    """A node on this kernel, and one on a kernel that lets descriptors through."""
    node = make_node()
    if request.param != "this kernel":
        node.faults = ["no_passrights"]
    return node.start()


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ["status.sock", "control.sock"])
def test_a_descriptor_whose_close_takes_minutes_holds_nobody_up(
    any_node: Node, name: str, attack: Callable[[Path, list[socket.socket]], int]
) -> None:
    """Gain: the daemon's first thread closes it, and nobody is served for as long as the attacker likes."""
    path = any_node.socket.with_name(name)
    kept: list[socket.socket] = []
    attacker = MALLORY if name == "status.sock" else _ROOT
    with bystander(any_node) as waits, ExitStack() as attacks:
        with none_read(any_node):
            passed = attacks.enter_context(attacking(attacker, lambda: attack(path, kept)))
        assert bool(passed) == ("no_passrights" in any_node.faults)
        ALICE.do(lambda: check_answers(any_node.socket.with_name("status.sock")))
        assert get(any_node.socket, "/v1/status")[0] == 200
    waits.check()


def check_answers(path: Path) -> None:
    for _ in range(2 * _EACH_USER):
        assert get(path, "/v1/status")[0] == 200


def test_such_a_descriptor_keeps_no_daemon_from_ending_and_no_other_from_starting(make_node: NodeFactory) -> None:
    """Gain: the daemon is killed, and neither ends nor lets go of the mount before the attacker does."""
    node = make_node()
    node.faults = ["no_passrights"]
    node.supervised = True
    node.start()
    kept: list[socket.socket] = []
    with ExitStack() as attacks:
        with none_read(node):
            attacks.enter_context(attacking(MALLORY, lambda: with_a_request(node.socket.with_name("status.sock"), kept)))
        for _ in range(2):
            before = node.status().pid
            node.kill_daemon()
            wait_until(lambda: node.status().pid != before)  # noqa: B023 it is called before the next turn
            ALICE.do(lambda: check_answers(node.socket.with_name("status.sock")))
    node.stop()


def test_a_doorkeeper_that_is_killed_is_followed_by_another(make_node: NodeFactory) -> None:
    node = make_node()
    node.faults = ["no_passrights"]
    node.start()
    for pid in doorkeepers(node):
        end = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([end], [], [])  # until then it may accept a connection, which dies with it
        os.close(end)
    for name in ("control.sock", "status.sock"):
        assert get(node.socket.with_name(name), "/v1/status")[0] == 200
    node.stop()


def test_a_doorkeeper_ends_with_its_daemon(make_node: NodeFactory) -> None:
    node = make_node()
    node.faults = ["no_passrights"]
    node.start()
    ends = [os.pidfd_open(pid) for pid in doorkeepers(node)]
    assert len(ends) == 2
    node.kill()
    for end in ends:
        select.select([end], [], [])
        os.close(end)


@contextmanager
def none_read(node: Node) -> Iterator[None]:
    """Let the processes that read what users send wait."""
    readers = doorkeepers(node)
    for pid in readers:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in readers:
        os.kill(pid, signal.SIGCONT)


def doorkeepers(node: Node) -> list[int]:
    """Return the processes that accept a node's connections."""
    return children_of(node.pid, b"doorkeeper")
