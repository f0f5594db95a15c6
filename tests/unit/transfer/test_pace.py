"""The rate at which a store is used, and who goes first."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from holdfast.transfer.library_calls import BACKGROUND_EVERY, IN_BACKGROUND, FairSlots
from holdfast.transfer.pace import Pace


async def take(pace: Pace, amount: float, taken: list[tuple[str, float]], name: str, *, in_background: bool = False) -> None:
    IN_BACKGROUND.set(in_background)
    await pace.take(amount)
    taken.append((name, trio.current_time()))


async def test_what_is_taken_is_paid_for_before_more_is_taken(autojump_clock: trio.testing.MockClock) -> None:
    pace, began = Pace(10.0), trio.current_time()
    await pace.take(30)
    assert trio.current_time() == began, "who comes first does not wait"
    await pace.take(5)
    assert trio.current_time() == pytest.approx(began + 3.0)
    await pace.take(1)
    assert trio.current_time() == pytest.approx(began + 3.5)
    await trio.sleep(100)
    now = trio.current_time()
    await pace.take(10)
    await pace.take(1)
    assert trio.current_time() == pytest.approx(now + 1.0), "nothing is saved up in a pause"


async def test_without_a_rate_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    pace, began = Pace(), trio.current_time()
    for _ in range(100):
        await pace.take(1e9)
    assert trio.current_time() == began


async def test_who_is_waited_for_goes_before_the_background(autojump_clock: trio.testing.MockClock) -> None:
    pace, taken = Pace(1.0), list[tuple[str, float]]()
    await pace.take(1)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: take(pace, 1, taken, "prefetch", in_background=True))
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.5)
        nursery.start_soon(take, pace, 1, taken, "reader")
    assert [name for name, _ in taken] == ["reader", "prefetch", "prefetch", "prefetch"]


async def test_the_background_has_its_turn_in_the_end(autojump_clock: trio.testing.MockClock) -> None:
    pace, taken = Pace(1.0), list[tuple[str, float]]()
    await pace.take(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: take(pace, 1, taken, "backlog", in_background=True))
        for _ in range(2 * BACKGROUND_EVERY):
            nursery.start_soon(take, pace, 1, taken, "reader")
    assert [name for name, _ in taken].index("backlog") < BACKGROUND_EVERY


async def test_another_rate_holds_for_those_who_wait(autojump_clock: trio.testing.MockClock) -> None:
    pace, began = Pace(1.0), trio.current_time()
    await pace.take(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pace.take, 1)
        await trio.sleep(10)
        pace.set_rate(90.0)
    assert trio.current_time() == pytest.approx(began + 11.0)
    await pace.take(1e9)
    pace.set_rate(0)
    await pace.take(1)
    assert trio.current_time() < began + 12.0


async def test_who_stops_waiting_is_in_nobodys_way(autojump_clock: trio.testing.MockClock) -> None:
    pace = Pace(1.0)
    await pace.take(5)
    with trio.move_on_after(1):
        await pace.take(1000)
    began = trio.current_time()
    await pace.take(1)
    assert trio.current_time() == pytest.approx(began + 4.0)


async def test_the_background_never_has_all_slots() -> None:
    slots = FairSlots(4)
    held = 0

    async def hold() -> None:
        nonlocal held
        IN_BACKGROUND.set(True)
        await slots.acquire()
        held += 1

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(hold)
        await trio.testing.wait_all_tasks_blocked()
        assert held == 3
        with trio.fail_after(1):
            await slots.acquire()
        slots.release()
        await trio.testing.wait_all_tasks_blocked()
        assert held == 3
        slots.release()
