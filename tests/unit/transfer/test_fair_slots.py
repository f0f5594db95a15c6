"""Slots that users share, and turns of each user's requests."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from holdfast.fs.fuse.request_turns import RequestTurns
from holdfast.telemetry import EventLog, RareEvents
from holdfast.transfer.fair_slots import ASKING_USER, FairSlots


@pytest.mark.promise("store-turns")
async def test_users_take_turns_and_each_in_its_order() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire_on_behalf_of(None)
    async with trio.open_nursery() as nursery:
        for user, number in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 0), (2, 1)]:
            nursery.start_soon(_asks, slots, user, number, served)
            await trio.testing.wait_all_tasks_blocked()
        slots.release_on_behalf_of(None)
    assert served == [(1, 0), (2, 0), (0, 0), (1, 1), (2, 1), (1, 2)]


async def test_who_stops_waiting_leaves_the_slot_to_the_next() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire_on_behalf_of(None)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as given_up:
                given_up.start_soon(_asks, slots, 1, 0, served)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        nursery.start_soon(_asks, slots, 2, 0, served)
        await trio.testing.wait_all_tasks_blocked()
        slots.release_on_behalf_of(None)
    assert served == [(2, 0)]
    await slots.acquire_on_behalf_of(None)


async def test_a_slot_that_is_given_to_a_cancelled_task_is_not_lost() -> None:
    slots, served = FairSlots(1), list[tuple[int, int]]()
    await slots.acquire_on_behalf_of(None)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_asks, slots, 1, 0, served)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            slots.release_on_behalf_of(None)
    with trio.fail_after(1):
        await slots.acquire_on_behalf_of(None)


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
    await slots.acquire_on_behalf_of(None)
    served.append((user, number))
    slots.release_on_behalf_of(None)
