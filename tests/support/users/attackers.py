"""Processes of users who go on attacking, or only live, while something else happens."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.support.users.privileges import User

_READY, _LONGEST = b".", 65_536


@contextmanager
def attacking(user: User, step: Callable[[int], object]) -> Iterator[None]:
    """Let a process of ``user`` call ``step`` with 0, 1, 2 … while the body runs; it has ended its first when that begins.

    Errors of the system are the attacker's bad luck, and are ignored.
    """

    def attack(begun: int, end: int) -> None:
        number = 0
        while not select.select([end], [], [], 0)[0]:
            with suppress(OSError):
                step(number)
            number += 1
            if number == 1:
                os.write(begun, _READY)

    with until_end(user, attack):
        yield


@contextmanager
def until_end(user: User, work: Callable[[int, int], object]) -> Iterator[bool]:
    """Run ``work`` in a process of ``user`` while the body runs; yield whether it has written to its first descriptor.

    Its second one is closed when the body ends, and so must ``work`` then.
    """
    begun_reader, begun = os.pipe()
    end_reader, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        try:
            user.become()
            work(begun, end_reader)
        finally:
            os._exit(0)
    os.close(begun)
    os.close(end_reader)
    try:
        yield os.read(begun_reader, 1) != b""
    finally:
        os.close(end)
        os.waitpid(pid, 0)
        os.close(begun_reader)


@contextmanager
def running(user: User, first: Callable[[], object] = bool) -> Iterator[int]:
    """The number of a process of ``user`` that has called ``first`` and sleeps until it is killed, at the end at last."""

    def lives(writer: int) -> None:
        first()
        os.write(writer, _READY)
        signal.pause()

    pid, reader = user.fork(lives)
    try:
        said = os.read(reader, _LONGEST)
        assert said in (_READY, b""), said.decode()  # nothing, if it has replaced itself
        yield pid
    finally:
        os.close(reader)
        with suppress(ChildProcessError):  # it was killed and waited for
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                kill(pid)


def kill(pid: int) -> None:
    """Kill a child, and wait for its end."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
