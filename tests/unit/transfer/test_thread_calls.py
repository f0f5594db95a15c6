"""Calls that threads have the event loop make, without trio's task for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from holdfast.fs.fuse.event_loop_wait import _loop_descriptor
from holdfast.transfer.thread_calls import ThreadCalls, soon_here, without_trios_task


@contextmanager
def _in_thread(function: Callable[[], object]) -> Iterator[None]:
    """Run ``function`` in a thread while the context lasts."""
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        thread.join()


async def _loop() -> int:
    """Return the descriptor of this event loop's epoll."""
    readable = os.eventfd(1, os.EFD_CLOEXEC)
    try:
        loop = await _loop_descriptor(readable)
    finally:
        os.close(readable)
    assert loop is not None
    return loop


async def test_a_call_of_a_thread_wakes_the_loop_and_is_made_there() -> None:
    with without_trios_task(await _loop()):
        soon, made, made_in = soon_here(), trio.Event(), list[int]()

        def call() -> None:
            made_in.append(threading.get_ident())
            made.set()

        for _ in range(3):
            made_in, made = [], trio.Event()
            with _in_thread(lambda: soon(call)):
                await made.wait()
            assert made_in == [threading.get_ident()]


async def test_calls_are_made_in_their_order_before_what_they_wake() -> None:
    with without_trios_task(await _loop()):
        soon, made, woken = soon_here(), list[int](), trio.Event()

        def call_all() -> None:
            for number in range(100):
                soon(made.append, number)
            soon(woken.set)

        with _in_thread(call_all):
            await woken.wait()
        assert made == list(range(100))


async def test_no_task_of_trios_runs_for_it() -> None:
    steps: list[str] = []

    class Watching(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            steps.append(task.name)

    with without_trios_task(await _loop()):
        soon, made = soon_here(), trio.Event()
        await wait_all_tasks_blocked()
        watching = Watching()
        trio.lowlevel.add_instrument(watching)
        with _in_thread(lambda: soon(made.set)):
            await made.wait()
        trio.lowlevel.remove_instrument(watching)
    assert len(steps) == 1, "the waiting task's own"


async def test_a_call_that_comes_as_the_context_ends_is_made() -> None:
    made: list[int] = []
    with without_trios_task(await _loop()):
        soon = soon_here()
        with _in_thread(lambda: soon(made.append, 1)):
            pass
    assert made == [1]


async def test_a_call_that_comes_later_is_made_by_trio() -> None:
    with without_trios_task(await _loop()):
        soon = soon_here()
    made = trio.Event()
    with _in_thread(lambda: soon(made.set)):
        await made.wait()


async def test_elsewhere_trio_makes_the_calls() -> None:
    soon, made = soon_here(), trio.Event()
    with _in_thread(lambda: soon(made.set)):
        await made.wait()


async def test_the_loop_waits_no_longer_when_it_is_woken() -> None:
    with without_trios_task(await _loop()) as calls:

        class Waking(trio.abc.Instrument):
            def before_io_wait(self, timeout: float) -> None:
                trio.lowlevel.remove_instrument(self)
                woken.set()  # whose task the loop does not see before it waits
                calls.wake()

        woken = trio.Event()
        trio.lowlevel.add_instrument(Waking())
        await woken.wait()


def test_the_error_of_a_call_ends_the_loop() -> None:
    async def main() -> None:
        with without_trios_task(await _loop()):
            soon = soon_here()
            with _in_thread(lambda: soon(_fail)):
                await trio.sleep_forever()

    with pytest.raises(trio.TrioInternalError):
        trio.run(main)


def _fail() -> None:
    raise ZeroDivisionError


def test_after_the_end_of_the_loop_a_thread_gets_an_error() -> None:
    kept: list[Callable[..., None]] = []

    async def main() -> None:
        with without_trios_task(await _loop()) as calls:
            assert isinstance(calls, ThreadCalls)
            kept.append(soon_here())

    trio.run(main)
    with pytest.raises(trio.RunFinishedError):
        kept[0](print)


def test_a_loop_s_calls_are_not_another_one_s() -> None:
    made: list[str] = []

    async def inner() -> None:
        soon, woken = soon_here(), trio.Event()
        with _in_thread(lambda: soon(woken.set)):
            await woken.wait()
        made.append("in the second loop")

    async def main() -> None:
        with without_trios_task(await _loop()):
            await trio.to_thread.run_sync(trio.run, inner)

    trio.run(main)
    assert made == ["in the second loop"]
