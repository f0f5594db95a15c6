"""Operations that begin without a task and go on in one."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import pytest
import trio

from holdfast.system.waits import Suspended, before_waiting, marked, resumed_once, step


async def _operation(steps: list[str], *, waits: bool) -> int:
    steps.append("begun")
    try:
        if waits:
            await before_waiting()
            await trio.lowlevel.checkpoint()
        steps.append("done")
        return len(steps)
    finally:
        steps.append("left")


def _begun(steps: list[str]) -> Callable[[], Awaitable[int]]:
    """Begin an operation that waits; return the function that goes on with it."""
    with pytest.raises(Suspended) as suspended:
        step(_operation(steps, waits=True))
    return resumed_once(suspended.value.operation, lambda: _operation(steps, waits=True))


def test_an_operation_that_waits_for_nothing_ends_without_a_task() -> None:
    steps: list[str] = []
    assert step(_operation(steps, waits=False)) == 2
    assert steps == ["begun", "done", "left"]


def test_the_error_of_an_operation_is_raised_where_it_was_begun() -> None:
    async def refused() -> None:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        step(refused())


async def test_an_operation_goes_on_where_it_was_suspended() -> None:
    steps: list[str] = []
    resume = _begun(steps)
    assert steps == ["begun"]
    assert await resume() == 2
    assert steps == ["begun", "done", "left"]


async def test_a_second_try_begins_anew() -> None:
    steps: list[str] = []
    resume = _begun(steps)
    await resume()
    assert await resume() == 5
    assert steps == ["begun", "done", "left"] * 2


async def test_an_error_in_the_task_passes_through_the_operation() -> None:
    steps: list[str] = []
    resume = _begun(steps)
    with trio.CancelScope() as scope:
        scope.cancel()
        await resume()
    assert scope.cancelled_caught
    assert steps == ["begun", "left"]


def test_a_request_that_gets_no_turn_leaves_its_operation() -> None:
    steps: list[str] = []
    resume = _begun(steps)
    del resume
    gc.collect()  # pytest keeps the exception in a cycle
    assert steps == ["begun", "left"]


async def test_in_a_task_nothing_is_suspended() -> None:
    before = trio.lowlevel.current_statistics().tasks_runnable
    await before_waiting()
    assert trio.lowlevel.current_statistics().tasks_runnable == before


def test_an_operation_that_waits_without_a_word_is_ended() -> None:
    left: list[str] = []

    async def silent() -> None:
        try:
            await trio.lowlevel.cancel_shielded_checkpoint()
        finally:
            left.append("left")

    with pytest.raises(RuntimeError):
        step(silent())
    assert left == ["left"]


async def test_each_step_of_a_marked_operation_is_marked_and_no_other_task_is() -> None:
    marks, steps = [0], list[str]()

    async def other() -> None:
        steps.append(f"another task: {marks[-1]}")

    async def operation() -> int:
        steps.append(f"begins: {marks[-1]}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
        steps.append(f"goes on: {marks[-1]}")
        return 3

    assert await marked(operation(), marks.append, 7) == 3
    assert steps == ["begins: 7", "another task: 0", "goes on: 7"]
    assert marks[-1] == 0


@pytest.mark.parametrize("is_caught", [False, True])
async def test_an_error_in_the_task_reaches_a_marked_operation(is_caught: bool) -> None:
    marks = [0]

    async def operation() -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            assert marks[-1] == 7
            if not is_caught:
                raise
        return "caught"

    found = ""
    with trio.CancelScope() as scope:
        scope.cancel()
        found = await marked(operation(), marks.append, 7)
    assert found == ("caught" if is_caught else "")
    assert marks[-1] == 0
