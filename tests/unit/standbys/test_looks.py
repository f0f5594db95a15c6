"""When a standby looks at the reports sooner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from holdfast.holdings.gathering import Neighbourhood, Told
from holdfast.holdings.report import NodeReport, QueryState, Standing, StoreState
from holdfast.holdings.ring import Ring
from holdfast.standbys import StoreStandbys

ZONE = "checkpoints"


class Fleet:
    """The gathering and publishing of a node ``me`` beside one that works with so many partitions."""

    def __init__(self) -> None:
        self.partitions = 1
        self.asked_soon: list[bool] = []
        self.section = SimpleNamespace(refresh_seconds=60.0, enabled=True)

    async def neighbours(self, zone: str, *, soon: bool) -> Neighbourhood:
        assert zone == ZONE
        self.asked_soon.append(soon)
        states = [StoreState(0, partition, "default", 7, 100) for partition in range(self.partitions)]
        reports = {"other": [QueryState("team/q", states)], "me": []}
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


async def test_after_duties_have_changed_four_looks_come_sooner() -> None:
    fleet: Any = Fleet()
    catching_up: Any = SimpleNamespace(zone=ZONE, wanted_copies=no_wish)
    standbys = StoreStandbys(catching_up, fleet, fleet, lambda: SimpleNamespace(), lambda: False)  # type: ignore[arg-type,return-value]
    for _ in range(6):
        await standbys._look(1)
    assert fleet.asked_soon == [False, True, True, True, True, False]
    fleet.partitions = 2
    for _ in range(2):
        await standbys._look(1)
    assert fleet.asked_soon[-2:] == [False, True]
