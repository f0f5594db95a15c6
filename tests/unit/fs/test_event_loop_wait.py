"""Requests in the event loop's idle time: who is asked, what ends it, and who gets what is left."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from holdfast.fs.fuse.event_loop_wait import Readiness, served_when_idle
from holdfast.kernel import Connection


class Idling:
    """Stands where the C module's ``serve`` does: sleeps on the loop's descriptor, after ``work`` has had its say."""

    def __init__(self) -> None:
        self.sees_requests = True
        self.work: Callable[[Idling, int], None] = lambda _, handed_over: None
        self.served = 0
        self.interrupted = False

    def serve(self, events: int, handed_over: int, seconds: float) -> bool:
        self.served += 1
        self.interrupted = False
        self.work(self, handed_over)
        if self.interrupted:
            return True
        return not select.select([events], [], [], seconds)[0]

    def interrupt(self, task: object) -> None:
        self.interrupted = True

    def once(self, work: Callable[[int], None]) -> None:
        """Do ``work`` in the next idle time only."""

        def do(idling: Idling, handed_over: int) -> None:
            idling.work = lambda _, handed_over: None
            work(handed_over)

        self.work = do


@pytest.fixture
def idling() -> Idling:
    return Idling()


def served(idling: Idling) -> AbstractAsyncContextManager[Readiness]:
    return served_when_idle(cast("Connection", idling))


async def has_begun(readiness: Readiness) -> None:
    """Read the first request, as pyfuse3 does."""
    reader, writer = os.pipe()
    os.write(writer, b"q")
    await readiness.wait_readable(reader)
    os.close(reader)
    os.close(writer)


async def test_a_deadline_of_the_loop_ends_it(idling: Idling) -> None:
    async with served(idling) as readiness:
        await has_begun(readiness)
        with trio.move_on_after(0.01) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert idling.served > 0


async def test_a_task_that_an_answer_schedules_runs_at_once(idling: Idling) -> None:
    async with served(idling) as readiness:
        await has_begun(readiness)
        answered = trio.Event()
        idling.once(lambda _: answered.set())
        await answered.wait()
        assert answered.is_set()


async def test_a_request_that_is_handed_over_wakes_the_worker(idling: Idling) -> None:
    async with served(idling) as readiness:
        await has_begun(readiness)
        idling.once(lambda handed_over: os.eventfd_write(handed_over, 1))
        await readiness.wait_readable(-1)


async def test_what_the_loop_waits_for_ends_it(idling: Idling) -> None:
    async with served(idling) as readiness:
        await has_begun(readiness)
        reader, writer = os.pipe()
        idling.once(lambda _: os.close(writer))
        await trio.lowlevel.wait_readable(reader)
        os.close(reader)


async def test_the_end_of_the_descriptor_ends_the_worker_s_wait(idling: Idling) -> None:
    async with served(idling) as readiness, trio.open_nursery() as nursery:
        await has_begun(readiness)
        ended: list[type[BaseException]] = []

        async def work() -> None:
            try:
                await readiness.wait_readable(-1)
            except trio.ClosedResourceError as problem:
                ended.append(type(problem))

        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        reader, writer = os.pipe()
        readiness.notify_closing(reader)
        os.close(reader)
        os.close(writer)
        served_before = idling.served
        await wait_all_tasks_blocked()
        assert ended == [trio.ClosedResourceError]
        assert idling.served == served_before


async def test_after_an_error_pyfuse3_waits_by_itself(idling: Idling, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: int) -> None:
        raise ValueError("a fault")

    async with served(idling) as readiness:
        await has_begun(readiness)
        idling.once(fail)
        await readiness.wait_readable(-1)
        await has_begun(readiness)
        await has_begun(readiness)
    assert [record.name for record in caplog.records] == ["trio.abc.Instrument"]


async def test_before_pyfuse3_has_read_nobody_else_does(idling: Idling) -> None:
    async with served(idling):
        await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()
        assert idling.served == 0


async def test_it_ends_with_its_context(idling: Idling) -> None:
    async with served(idling) as readiness:
        await has_begun(readiness)
    before = idling.served
    await wait_all_tasks_blocked()
    assert idling.served == before


async def test_without_the_c_module_pyfuse3_waits_by_itself(idling: Idling) -> None:
    idling.sees_requests = False
    async with served(idling) as readiness:
        known: Any = trio.lowlevel
        assert readiness is known
