"""Waiting until the kernel has dropped names: not for ever, and not for what a process was told that was killed."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from holdfast.fs.fuse.name_drops import PATIENCE_SECONDS, NameDrops
from holdfast.kernel import Invalidator
from holdfast.kernel.invalidator import inode_notice, notice
from tests.support.processes.children import children_of

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it ends by itself
NAMES = [(7, b"%d" % number) for number in range(250)]

SOME = NAMES[:60]
"""So many fit into a socket three times."""


@pytest.fixture
def held() -> Iterator[tuple[int, int]]:
    """What stands for ``/dev/fuse`` while a lock is held: a pipe that is full. Its two ends."""
    reader, writer = os.pipe()
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)))
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_names_that_nobody_waits_for_any_more_are_dropped_all_the_same(held: tuple[int, int]) -> None:
    reader, writer = held
    clock = MockClock(autojump_threshold=0.1)

    async def drop() -> None:
        invalidator = Invalidator(writer)
        drops = NameDrops(invalidator)
        assert sorted(await drops.drop(NAMES)) == sorted(NAMES)
        assert clock.current_time() >= PATIENCE_SECONDS
        clock.autojump_threshold = math.inf
        before = clock.current_time()
        assert await drops.drop(NAMES[:1]) == NAMES[:1], "it is known to be held"
        assert clock.current_time() == before
        told = b""
        while not all(notice(*name) in told for name in NAMES):
            told += await trio.to_thread.run_sync(os.read, reader, 1 << 16)
        drops.close()
        invalidator.close()

    trio.run(drop, clock=clock)


def test_names_that_a_killed_process_was_told_are_told_again() -> None:
    kernel, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    async def drop() -> None:
        others = children_of(os.getpid())
        invalidator = Invalidator(device.fileno())
        drops = NameDrops(invalidator)
        (process,) = set(children_of(os.getpid())) - set(others)
        os.kill(process, signal.SIGSTOP)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drop_all, drops)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(process, signal.SIGKILL)
        invalidator.close()

    async def drop_all(drops: NameDrops) -> None:
        assert await drops.drop(SOME) == []

    with kernel, device:
        trio.run(drop)
        kernel.setblocking(False)
        told = set()
        with suppress(BlockingIOError):
            while True:
                told.add(kernel.recv(4096))
        assert told == {message for parent, name in SOME for message in (notice(parent, name), inode_notice(parent))}
