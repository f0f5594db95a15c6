"""Requests for standby copies give way to those that somebody waits for, and keep to their rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from holdfast.standbys.restraint import Restraint
from holdfast.transfer import RemoteAccess


class Busy:
    """A store with requests that wait, fetches that somebody waits for, and a machine with processes that wait to run."""

    def __init__(self, *, waiting: int = 0, fetches: int = 0, pressure: float = 0.0) -> None:
        self.access = SimpleNamespace(waiting=waiting)
        self.fetches = fetches
        self.pressure = pressure

    def restraint(self) -> Restraint:
        return Restraint(cast(RemoteAccess, self.access), lambda: self.fetches, lambda: self.pressure)


async def test_when_nobody_waits_requests_are_made_at_once(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    began = trio.current_time()
    await Busy().restraint().take(10**9)
    assert trio.current_time() == began


@pytest.mark.parametrize("busy", [Busy(waiting=3), Busy(fetches=1)])
async def test_a_request_waits_for_the_others_but_not_for_ever(busy: Busy, autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    restraint, began = busy.restraint(), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(restraint.take)
        await trio.sleep(10)
        busy.access.waiting = busy.fetches = 0
    assert 10 <= trio.current_time() - began <= 10.2
    busy.fetches, began = 1, trio.current_time()
    await restraint.take()
    assert trio.current_time() - began == pytest.approx(30)


async def test_a_fetch_waits_while_processes_wait_for_a_processor_as_long_as_a_slow_one_takes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    busy = Busy(pressure=0.9)
    restraint, began = busy.restraint(), trio.current_time()
    await restraint.take()
    await restraint.take(10**6)
    assert trio.current_time() == began, "small ones cost the processors nothing"
    await restraint.take(64 * 2**20)
    assert trio.current_time() - began == pytest.approx(4, abs=0.2), "16 MiB/s"
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(restraint.take, 64 * 2**20)
        await trio.sleep(1.1)
        busy.pressure = 0.1
    assert trio.current_time() - began == pytest.approx(1.2)


async def test_rates_hold_for_requests_and_bytes(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    restraint, began = Busy().restraint(), trio.current_time()
    restraint.limit(100, 0)
    for _ in range(3):
        await restraint.take(1000)
    assert trio.current_time() - began == pytest.approx(20), "what is taken is paid for before more is"
    began = trio.current_time()
    restraint.limit(0, 4)
    for _ in range(9):
        await restraint.take()
    assert trio.current_time() - began == pytest.approx(2)
