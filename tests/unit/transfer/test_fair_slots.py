"""Slots that users share, and turns of each user's requests."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from holdfast.fs.fuse.later_replies import RequestTurns
from holdfast.telemetry import EventLog, RareEvents
from holdfast.transfer.library_calls import ASKING_USER, BEHIND_ALL, IN_BACKGROUND, FairSlots


@pytest.mark.promise("store-turns")
async def test_users_take_turns_and_each_in_its_order() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire()
    async with trio.open_nursery() as nursery:
        for user, number in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 0), (2, 1)]:
            nursery.start_soon(_asks, slots, user, number, served)
            await trio.testing.wait_all_tasks_blocked()
        slots.release()
    assert served == [(1, 0), (2, 0), (0, 0), (1, 1), (2, 1), (1, 2)]


async def test_who_stops_waiting_leaves_the_slot_to_the_next() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as given_up:
                given_up.start_soon(_asks, slots, 1, 0, served)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        nursery.start_soon(_asks, slots, 2, 0, served)
        await trio.testing.wait_all_tasks_blocked()
        slots.release()
    assert served == [(2, 0)]
    await slots.acquire()


async def test_what_comes_behind_all_waits_for_the_background_and_leaves_half_of_the_slots() -> None:
    slots, served = FairSlots(4), list[str]()

    async def ask(name: str, *, in_background: bool = True, behind_all: bool = False) -> None:
        IN_BACKGROUND.set(in_background)
        BEHIND_ALL.set(behind_all)
        await slots.acquire()
        served.append(name)

    async with trio.open_nursery() as nursery:
        for name in ("copy 1", "copy 2", "copy 3"):
            nursery.start_soon(partial(ask, name, behind_all=True))
            await trio.testing.wait_all_tasks_blocked()
        assert served == ["copy 1", "copy 2"], "of four slots two are left free"
        nursery.start_soon(ask, "prefetch 1")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(ask, "reader", in_background=False))
        await trio.testing.wait_all_tasks_blocked()
        assert served[2:] == ["prefetch 1", "reader"]
        nursery.start_soon(ask, "prefetch 2")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(4):
            slots.release()
            await trio.testing.wait_all_tasks_blocked()
    assert served[4:] == ["prefetch 2", "copy 3"]


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_with_few_slots_what_comes_behind_all_gets_one_in_the_end(count: int) -> None:
    slots = FairSlots(count)
    for _ in range(count):
        await slots.acquire()
    IN_BACKGROUND.set(True)
    BEHIND_ALL.set(True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slots.acquire)
        await trio.testing.wait_all_tasks_blocked()
        assert slots.waiting == 1
        for _ in range(count):
            slots.release()
    assert slots.waiting == 0


async def test_a_slot_that_is_given_to_a_cancelled_task_is_not_lost() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_asks, slots, 1, 0, served)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            slots.release()
    with trio.fail_after(1):
        await slots.acquire()


async def test_a_request_in_its_turn_asks_for_its_user() -> None:
    turns = RequestTurns(1, RareEvents(EventLog(lambda: 0.0), lambda: 0.0))
    async with turns.of(7):
        assert ASKING_USER.get() == 7
        async with turns.of(0):
            assert ASKING_USER.get() == 7
    assert ASKING_USER.get() == 0


async def test_requests_beyond_the_limit_wait_for_the_users_own() -> None:
    events = EventLog(lambda: 0.0)
    turns, order = RequestTurns(1, RareEvents(events, lambda: 0.0)), list[int]()

    async def asks(uid: int, number: int) -> None:
        async with turns.of(uid):
            order.append(number)

    async with trio.open_nursery() as nursery, turns.of(7):
        for number in range(3):
            nursery.start_soon(asks, 7, number)
            await trio.testing.wait_all_tasks_blocked()
        await asks(8, 8)
        await asks(0, 9)
        assert order == [8, 9]
    assert order == [8, 9, 0, 1, 2]
    assert [event.fields["uid"] for event in events.since(0)] == [7]


async def _asks(slots: FairSlots, user: int, number: int, served: list[tuple[int, int]]) -> None:
    ASKING_USER.set(user)
    await slots.acquire()
    served.append((user, number))
    slots.release()
