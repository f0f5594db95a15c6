"""How late the event loop is, measured by a daemon that is busy and by one that is not."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from holdfast.telemetry import LoopLag


async def counted(seconds: float, processor_seconds: Callable[[], float]) -> tuple[int, int]:
    """Return what was counted in so many seconds, and how often the task went on for it."""
    lag, steps = LoopLag(processor_seconds), Steps(LoopLag.run.__qualname__)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.run)
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(seconds)
        trio.lowlevel.remove_instrument(steps)
        nursery.cancel_scope.cancel()
    return lag.histogram().total, steps.number


class Steps(trio.abc.Instrument):
    """Counts the steps of the tasks with this name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.number = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.number += self._name in task.name


async def test_a_busy_daemon_measures_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    total, steps = await counted(60.5, trio.current_time)
    assert total == 60
    assert 60 <= steps <= 62


async def test_an_idle_daemon_measures_seldom_and_counts_each_second(autojump_clock: trio.testing.MockClock) -> None:
    total, steps = await counted(60.5, lambda: 0.0)
    assert total == 60
    assert steps <= 15


async def test_an_idle_daemon_that_was_late_measures_again_soon(mock_clock: trio.testing.MockClock) -> None:
    lag = LoopLag(lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lag.run)
        for seconds in (1.05, 1.0):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert lag.histogram().total == 2
