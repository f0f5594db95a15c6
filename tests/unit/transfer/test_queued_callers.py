"""Callers that wait in the kernel behind others: the deadline of their operation began when they did."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import RemoteUnavailableError
from holdfast.transfer.retry import QueuedCallers, Retry

DEADLINE_SECONDS = 100.0
FIRST, SECOND = 11, 12


class Kernel:
    """The threads that are blocked, each with how often it has gone to sleep."""

    def __init__(self) -> None:
        self.blocked: dict[int, int] = {}
        self.looks = 0

    def look(self) -> dict[int, int]:
        self.looks += 1
        return dict(self.blocked)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def queued(kernel: Kernel) -> QueuedCallers:
    return QueuedCallers(kernel.look)


async def test_a_thread_has_waited_since_it_was_first_seen_asleep(
    queued: QueuedCallers, kernel: Kernel, mock_clock: MockClock
) -> None:
    for moment in (0, 10, 20):
        mock_clock.jump(moment - trio.current_time())
        kernel.blocked = {FIRST: 1, SECOND: moment}  # the second one wakes, and sleeps again
        await queued.look()
    mock_clock.jump(1)
    assert (queued.began(FIRST), queued.began(SECOND)) == (0, 20)
    assert queued.began(99) == trio.current_time(), "nobody has seen it"
    queued.told(FIRST)
    assert queued.began(FIRST) == trio.current_time(), "it asks for something else"


async def test_what_was_seen_does_not_count_for_long(queued: QueuedCallers, kernel: Kernel, mock_clock: MockClock) -> None:
    kernel.blocked = {FIRST: 1}
    await queued.look()
    mock_clock.jump(5)
    assert queued.began(FIRST) == 0
    mock_clock.jump(1)
    assert queued.began(FIRST) == trio.current_time()


async def test_what_an_earlier_outage_has_seen_counts_no_more_while_a_new_look_goes_on(
    queued: QueuedCallers, kernel: Kernel, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.blocked = {FIRST: 1}
    await queued.look()
    mock_clock.jump(7200)
    began = []

    async def slow(look: Callable[[], dict[int, int]], **how: object) -> dict[int, int]:
        began.append(queued.began(FIRST))
        return look()

    monkeypatch.setattr(trio.to_thread, "run_sync", slow)
    await queued.look()
    assert began == [trio.current_time()]


async def test_a_look_that_fails_changes_nothing(kernel: Kernel, mock_clock: MockClock) -> None:
    def look() -> dict[int, int]:
        kernel.look()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    queued = QueuedCallers(look)
    await queued.look()
    await queued.look()
    assert kernel.looks == 1
    assert queued.began(FIRST) == trio.current_time()


async def test_many_failures_look_once_in_two_seconds(queued: QueuedCallers, kernel: Kernel, mock_clock: MockClock) -> None:
    for _ in range(30):
        await queued.look()
        mock_clock.jump(0.1)
    assert kernel.looks == 2


async def test_those_in_a_queue_end_with_the_first(queued: QueuedCallers, kernel: Kernel, autojump_clock: MockClock) -> None:
    """As in a directory whose lock the kernel holds for one at a time. A library that hangs would take a minute for each."""
    tries: list[int] = []
    ended: list[float] = []
    kernel.blocked = dict.fromkeys(range(1, 4), 7)

    async def hangs(caller: int) -> None:
        tries.append(caller)
        await trio.sleep(60)
        raise RemoteUnavailableError("no answer")

    for caller in range(4):
        kernel.blocked.pop(caller, None)
        with pytest.raises(RemoteUnavailableError, match="gave up after 100 s"):
            await Retry(DEADLINE_SECONDS, random.Random(1), queued, caller).run(lambda caller=caller: hangs(caller))  # type: ignore[misc]
        ended.append(trio.current_time())
    assert tries == [0, 0, 1], "the others have waited as long as the first two"
    assert ended[0] < DEADLINE_SECONDS + 60
    assert ended[1:] == [ended[1]] * 3
    assert ended[-1] < DEADLINE_SECONDS + 2 * 60 + 5


async def test_who_comes_late_still_has_a_whole_deadline(
    queued: QueuedCallers, kernel: Kernel, autojump_clock: MockClock
) -> None:
    async def fails() -> None:
        if trio.current_time() > DEADLINE_SECONDS / 2:
            kernel.blocked = {SECOND: 3}
        raise RemoteUnavailableError("down")

    with pytest.raises(RemoteUnavailableError):
        await Retry(DEADLINE_SECONDS, random.Random(1), queued, FIRST).run(fails)
    with pytest.raises(RemoteUnavailableError):
        await Retry(DEADLINE_SECONDS, random.Random(1), queued, SECOND).run(fails)
    assert 1.4 * DEADLINE_SECONDS < trio.current_time() < 1.6 * DEADLINE_SECONDS
