"""Who gets in where one user has as many processes and connections as the system allows (before Linux 6.16)."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.control import doors
from holdfast.control.doorkeeper import Doorkeeper, Share, uid_of
from tests.security.test_passed_descriptors import lingering, pass_on
from tests.support.daemons.node import wait_until
from tests.support.users.hostile_clients import attacking, connected, wait_closed
from tests.support.users.privileges import ALICE, MALLORY, User, needs_root

pytestmark = needs_root
_ROOT = User(0, 0)
_THREADS, _WAITING = 80, 128
"""How many connections of one user are served, and how many wait."""


@pytest.fixture
def listener(workspace: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        path = workspace / "door.sock"
        made.bind(str(path))
        path.chmod(0o666)
        made.listen(1024)
        yield made


def test_one_users_processes_take_no_more_than_one_users_share(listener: socket.socket) -> None:
    """Gain: by more processes a user has more threads, until the daemon's service may start none and nobody gets in."""
    path = Path(listener.getsockname())
    kept: list[socket.socket] = []

    def connects(number: int) -> None:
        kept.extend(connected(path) for _ in range(number))

    def sends_what_lingers() -> None:
        connects(1)
        pass_on(kept[-1], lingering(), b"x")

    # All are there before any is accepted.
    with (
        attacking(MALLORY, lambda: connects(100)),
        attacking(MALLORY, lambda: connects(_THREADS + _WAITING - 100)),
        attacking(MALLORY, sends_what_lingers),
        attacking(MALLORY, sends_what_lingers),
        attacking(ALICE, lambda: connects(1)),
        attacking(_ROOT, lambda: connects(1)),
    ):
        keeper = Doorkeeper(listener)
        try:
            with ExitStack() as connections:
                _check_who_is_in(keeper, connections)
        finally:
            keeper.close()
            keeper._process.wait()


def _check_who_is_in(keeper: Doorkeeper, connections: ExitStack) -> None:
    found: Counter[int] = Counter()
    while found != {MALLORY.uid: _THREADS, ALICE.uid: 1, 0: 1}:
        select.select([keeper.channel], [], [])
        came = keeper.next()
        assert came is not None
        told, connection = came
        assert connection is not None
        connections.enter_context(connection)
        found[uid_of(told)] += 1
        assert found[MALLORY.uid] <= _THREADS
    process = Path(f"/proc/{keeper._process.pid}")
    assert len(list((process / "task").iterdir())) == 1 + found.total()
    # Besides, there are: three of every process, the listener, the channel, the closer's. Those that linger are gone.
    wait_until(lambda: len(os.listdir(process / "fd")) == 6 + 2 * found.total() + _WAITING)


async def test_while_no_process_can_be_started_the_daemon_tries_again(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Gain: a user who has used up the node's processes ends the daemon, whose doorkeeper was killed."""
    monkeypatch.setattr(doors, "_AGAIN_SECONDS", 0.0)
    door = doors.KeptDoor(listener, "door.sock")
    start = subprocess.Popen
    refusals = [BlockingIOError(errno.EAGAIN, "no process is left")] * 3

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if refusals:
            raise refusals.pop()
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    first = door._keeper._process
    first.kill()
    first.wait()
    with connected(Path(listener.getsockname())):
        connection, caller = await door.accept()
        connection.close()
    assert caller.uid == 0
    assert not refusals
    assert [record.getMessage() for record in caplog.records] == [
        "the process that accepts connections on door.sock has ended; starting it again",
        "can't start it; trying again: no process is left",
    ]
    door.close()
    door._keeper._process.wait()


def test_a_connection_that_is_too_many_is_ended(listener: socket.socket) -> None:
    path = Path(listener.getsockname())
    kept: list[socket.socket] = []

    def connects(number: int) -> None:
        kept.extend(connected(path) for _ in range(number))

    with attacking(MALLORY, lambda: connects(_THREADS + _WAITING)):
        keeper = Doorkeeper(listener)
        try:
            MALLORY.do(lambda: _check_ended(path))
        finally:
            keeper.close()
            keeper._process.wait()


def _check_ended(path: Path) -> None:
    with connected(path) as channel:
        assert wait_closed(channel) == b""


@pytest.mark.parametrize(
    ("held", "user", "has_room"),
    [
        ({}, 1, True),
        ({1: 3}, 1, True),
        ({1: 4}, 1, False),  # each_user
        ({1: 4, 2: 3}, 2, False),  # as much as is left
        ({1: 4, 2: 3}, 3, True),
        ({1: 4, 2: 3, 3: 2, 4: 1}, 5, False),
        ({0: 5, 1: 4, 2: 3}, 3, True),  # root's are apart
        ({0: 4, 1: 4, 2: 3, 3: 2, 4: 1}, 0, True),
        ({0: 5}, 0, False),
    ],
)
def test_whoever_comes_next_finds_room(held: dict[int, int], user: int, has_room: bool) -> None:
    assert Share(each_user=4, users=10, root=5).has_room(user, held) == has_room
