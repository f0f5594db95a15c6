"""When a standby looks at the reports sooner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from holdfast.holdings.gathering import Neighbourhood, Told
from holdfast.holdings.report import NodeReport, QueryState, Standing, StoreState
from holdfast.holdings.ring import Ring
from holdfast.standbys import StoreStandbys

ZONE = "checkpoints"


class Fleet:
    """The gathering and publishing of a node ``me`` beside one that works with so many partitions."""

    def __init__(self) -> None:
        self.partitions = 1
        self.queries = ["team/q"]
        self.asked_soon: list[bool] = []
        self.section = SimpleNamespace(refresh_seconds=60.0, interval_seconds=5.0, enabled=True)

    async def neighbours(self, zone: str, *, soon: bool) -> Neighbourhood:
        assert zone == ZONE
        self.asked_soon.append(soon)
        states = [StoreState(0, partition, "default", 7, 100) for partition in range(self.partitions)]
        reports = {"other": [QueryState(location, states) for location in self.queries], "me": []}
        told = {
            name: Told(ZONE, name, NodeReport(node=name, cores=4, standbys=1, queries=queries), 1.0, name == "me")
            for name, queries in reports.items()
        }
        return Neighbourhood("me", Ring(told), told, 0.0, 120.0)

    def clock(self) -> float:
        return 2.0

    def stand_by(self, zone: str, standing: Standing) -> None:
        assert (zone, standing.copies) == (ZONE, 1)


async def no_wish(location: str) -> None:
    assert location == "team/q"


def standbys_of(fleet: Any, wanted_copies: Callable[[str], Awaitable[int | None]]) -> StoreStandbys:
    catching_up: Any = SimpleNamespace(zone=ZONE, wanted_copies=wanted_copies)
    return StoreStandbys(catching_up, fleet, fleet, lambda: SimpleNamespace(), lambda: False)  # type: ignore[arg-type,return-value]


async def test_after_duties_have_changed_four_looks_come_sooner() -> None:
    fleet = Fleet()
    standbys = standbys_of(fleet, no_wish)
    for _ in range(6):
        await standbys._look(1)
    assert fleet.asked_soon == [False, True, True, True, True, False]
    fleet.partitions = 2
    for _ in range(2):
        await standbys._look(1)
    assert fleet.asked_soon[-2:] == [False, True]


async def test_duties_do_not_wait_for_the_wishes_of_a_thousand_queries(mock_clock: MockClock) -> None:
    asked: list[str] = []

    async def slowly(location: str) -> int:
        mock_clock.jump(3)
        await trio.lowlevel.checkpoint()
        asked.append(location)
        return 0

    fleet = Fleet()
    fleet.queries = [f"q{number:03}" for number in range(1000)]
    standbys = standbys_of(fleet, slowly)
    began = trio.current_time()
    await standbys._look(1)
    assert trio.current_time() - began <= 60
    assert standbys.figures.partitions == 1000 - len(asked), "of the others it is believed that they want one copy"
    cut_off = fleet.queries[len(asked)]
    await standbys._look(1)
    in_turn = [location for location in fleet.queries if location != cut_off]
    assert asked == in_turn[: len(asked)], "each look goes on where the last one ended"
    assert standbys.figures.partitions == 1000 - len(asked) < 1000 - 15
