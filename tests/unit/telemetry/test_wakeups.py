"""Background work wakes up together, and no later than it asked for."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from holdfast.telemetry.wakeups import sleep_within, wakeup_within


@pytest.mark.parametrize(
    ("now", "seconds", "wakes_at"), [(0, 5, 5), (12, 5, 15), (14.9, 5, 15), (14.9, 15, 25), (3, 0.2, 3.2)]
)
async def test_it_is_a_common_time_within_what_was_asked_for(
    now: float, seconds: float, wakes_at: float, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.jump(now)
    assert wakeup_within(seconds) - trio.current_time() == pytest.approx(wakes_at - now)


async def test_tasks_that_began_at_different_times_wake_up_at_the_same(autojump_clock: trio.testing.MockClock) -> None:
    times: set[float] = set()

    async def work(begins: float, seconds: float) -> None:
        await trio.sleep(begins)
        for _ in range(10):
            await sleep_within(seconds)
            times.add(trio.current_time())

    async with trio.open_nursery() as nursery:
        for begins in range(5):
            nursery.start_soon(work, begins, 5)
            nursery.start_soon(work, begins, 15)
    assert len(times) <= 31
