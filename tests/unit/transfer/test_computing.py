"""Work with many names: others go on between its slices, and those who want the same at the same time share it."""

from __future__ import annotations

import time

import pytest
import trio

from holdfast.errors import RemoteUnavailableError
from holdfast.transfer.computing import AT_ONCE, Work, computed, emptied, in_order
from holdfast.transfer.library_calls import ASKING_USER
from holdfast.transfer.shared_work import SharedWork


def slow(steps: int, told: list[str] | None = None, who: str = "") -> Work[int]:
    for _ in range(steps):
        end = time.perf_counter() + 0.003  # longer than a slice
        while time.perf_counter() < end:
            pass
        if told is not None:
            told.append(who)
        yield
    return steps


async def test_others_go_on_between_the_slices_of_long_work() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await computed(slow(10), AT_ONCE + 1) == 10
        nursery.cancel_scope.cancel()
    assert turns >= 5


async def test_work_with_few_names_waits_for_nothing() -> None:
    with trio.testing.assert_no_checkpoints():
        assert await computed(slow(2), AT_ONCE) == 2


async def test_users_have_their_slices_by_turns() -> None:
    told: list[str] = []

    async def work(uid: int, who: str) -> None:
        ASKING_USER.set(uid)
        await computed(slow(4, told, who), AT_ONCE + 1)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(work, 7, f"a{number}")
        nursery.start_soon(work, 8, "b")
    assert told.index("b") < 6, "before the work of the others has ended"


async def test_names_come_in_order_and_what_is_not_needed_goes() -> None:
    names = [b"%d" % number for number in range(3 * AT_ONCE)]
    assert list(await computed(in_order(names), len(names))) == sorted(names)
    mapping = dict.fromkeys(names)
    await computed(emptied(mapping), len(mapping))
    assert mapping == {}


async def test_who_comes_while_work_is_done_shares_the_next_one() -> None:
    shared, made = SharedWork[str](), 0

    async def make() -> None:
        nonlocal made
        made += 1
        await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(shared.made, "a", make)
    assert made == 2


async def test_all_who_share_work_get_its_error_and_others_do_not() -> None:
    shared, made = SharedWork[str](), 0

    async def fail() -> None:
        nonlocal made
        made += 1
        await trio.sleep(0.01)
        raise RemoteUnavailableError("down")

    async def asked() -> None:
        with pytest.raises(RemoteUnavailableError, match="down"):
            await shared.made("a", fail)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(asked)
    assert made == 2
    await shared.made("a", trio.lowlevel.checkpoint)


async def test_who_is_cancelled_leaves_the_work_to_the_next() -> None:
    shared = SharedWork[str]()
    with trio.move_on_after(0.01):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shared.made, "a", trio.sleep_forever)
    with trio.fail_after(5):
        await shared.made("a", trio.lowlevel.checkpoint)
