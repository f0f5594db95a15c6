"""Insisting: passing errors are tried again until the deadline, answers are final."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from holdfast.errors import HoldfastError, RemoteRefusedError, RemoteUnavailableError
from holdfast.transfer.retry import Retry

DEADLINE_SECONDS = 100.0


class Scripted:
    """Raises ``problems`` one after the other, then succeeds; ``tried`` has the times."""

    def __init__(self, *problems: HoldfastError) -> None:
        self.tried: list[float] = []
        self._problems = list(problems)

    async def ask(self) -> str:
        self.tried.append(trio.current_time())
        if self._problems:
            raise self._problems.pop(0)
        return "yes"


def retry() -> Retry:
    return Retry(DEADLINE_SECONDS, random.Random(1))


async def test_pauses_between_tries_grow(autojump_clock: MockClock) -> None:
    scripted = Scripted(*[RemoteUnavailableError("down")] * 12)
    assert await retry().run(scripted.ask) == "yes"
    pauses = [later - earlier for earlier, later in zip(scripted.tried, scripted.tried[1:], strict=False)]
    assert 0.025 <= pauses[0] <= 0.05
    assert all(2.5 <= pause <= 5.0 for pause in pauses[7:])


async def test_an_answer_of_the_store_is_final(autojump_clock: MockClock) -> None:
    scripted = Scripted(RemoteUnavailableError("down"), RemoteRefusedError("no"))
    with pytest.raises(RemoteRefusedError, match=r"^no$"):
        await retry().run(scripted.ask)
    assert len(scripted.tried) == 2


async def test_the_deadline_ends_it_before_the_pause_that_would_pass_it(autojump_clock: MockClock) -> None:
    scripted = Scripted(*[RemoteUnavailableError("down")] * 1000)
    insisting = retry()
    with pytest.raises(RemoteUnavailableError, match=r"^down; gave up after 100 s and \d+ tries$") as failure:
        await insisting.run(scripted.ask)
    assert DEADLINE_SECONDS - 5 <= trio.current_time() - scripted.tried[0] <= DEADLINE_SECONDS
    assert f"and {len(scripted.tried)} tries" in str(failure.value)
    assert insisting.failures == len(scripted.tried) - 1


async def test_a_next_try_is_announced_without_waiting(autojump_clock: MockClock) -> None:
    insisting = retry()
    now = trio.current_time()
    assert now < insisting.next_try(RemoteUnavailableError("down")) <= now + 0.05
    assert insisting.failures == 1
