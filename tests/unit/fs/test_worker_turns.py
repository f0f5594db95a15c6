"""How pyfuse3's workers share one descriptor: who answers goes on, and nobody is left waiting while nobody listens."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pyfuse3
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from holdfast.fs.fuse.event_loop_wait import take_turns

seam: Any = pyfuse3


class Workers:
    """What pyfuse3 does, with a pipe for ``/dev/fuse``: a byte is a request; ``S`` is one whose answer waits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.answered: list[tuple[str, bytes]] = []
        self.gate = trio.Event()
        self._lock = seam.trio.Lock()

    async def work(self, name: str) -> None:
        while True:
            async with self._lock:
                await seam.trio.lowlevel.wait_readable(self.fd)
            request = os.read(self.fd, 1)
            if request == b"S":
                await self.gate.wait()
            self.answered.append((name, request))


@pytest.fixture(autouse=True)
def real_trio() -> Iterator[None]:
    yield
    seam.trio = trio


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


@asynccontextmanager
async def working(fd: int, *names: str) -> AsyncIterator[Workers]:
    take_turns(trio.lowlevel)
    workers = Workers(fd)
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(workers.work, name)
            await wait_all_tasks_blocked()
        yield workers
        nursery.cancel_scope.cancel()


async def test_the_worker_that_answered_takes_the_next_request(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    async with working(reader, "one", "two") as workers:
        for _ in range(3):
            os.write(writer, b"q")
            await wait_all_tasks_blocked()
        assert workers.answered == [("one", b"q")] * 3


async def test_another_worker_listens_while_one_waits_for_something_else(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    async with working(reader, "one", "two") as workers:
        os.write(writer, b"Sqq")
        await wait_all_tasks_blocked()
        assert workers.answered == [("two", b"q")] * 2
        workers.gate.set()
        await wait_all_tasks_blocked()
        assert workers.answered[2:] == [("one", b"S")]


async def test_a_flood_of_requests_does_not_keep_others_from_their_turn(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    async with working(reader, "one") as workers:
        os.write(writer, b"q" * 60_000)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert 0 < len(workers.answered) < 60_000


async def test_a_parked_worker_can_be_cancelled(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    async with working(reader, "one") as workers, trio.open_nursery() as nursery:
        nursery.start_soon(workers.work, "two")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        os.write(writer, b"q")
        await wait_all_tasks_blocked()
        assert workers.answered == [("one", b"q")]
