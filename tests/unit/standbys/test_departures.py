"""A node whose partitions have gone on elsewhere since it spoke is silent sooner; one that speaks never is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.config import HoldingsSection
from holdfast.holdings.gathering import Told
from holdfast.holdings.report import NodeReport, QueryState, StoreState
from holdfast.standbys import StoreStandbys
from holdfast.standbys.departures import Departures
from holdfast.standbys.duties import Neighbours, Reporter, held_by_nodes

QUERY = "team/q"


def test_who_has_lost_partitions_since_the_last_word() -> None:
    departures = Departures()
    assert departures.look({"a": 10.0, "b": 11.0}, {"a": 8, "b": 8}) == set()
    assert departures.look({"a": 10.0, "b": 11.0}, {"a": 7, "b": 9}) == set(), "nearly as many"
    assert departures.look({"a": 10.0, "b": 11.0}, {"a": 6, "b": 10}) == {"a"}
    assert departures.look({"a": 10.0, "b": 11.0}, {"b": 16}) == {"a"}


def test_who_has_lost_partitions_and_spoken_meanwhile_has_lost_them_until_the_next_word() -> None:
    departures = Departures()
    departures.look({"a": 10.0}, {"a": 8})
    assert departures.look({"a": 130.0}, {"a": 2}) == {"a"}
    assert departures.look({"a": 250.0}, {"a": 2}) == set()


def test_who_never_held_anything_loses_nothing_and_who_is_gone_is_forgotten() -> None:
    departures = Departures()
    for word in (10.0, 20.0):
        assert departures.look({"a": word, "b": word}, {"b": 4}) == set()
    assert departures.look({"a": 20.0}, {}) == set()
    assert departures.look({"a": 20.0, "b": 20.0}, {}) == set()


def report(node: str, versions: dict[int, int]) -> NodeReport:
    states = [StoreState(0, partition, "default", version, 100) for partition, version in versions.items()]
    return NodeReport(node=node, cores=4, standbys=1, queries=[QueryState(QUERY, states)] if states else [])


def test_a_partition_is_held_by_the_node_with_its_newest_version() -> None:
    reporters = [Reporter("a", report("a", {0: 7, 1: 7, 2: 7})), Reporter("b", report("b", {1: 8, 3: 2000}))]
    assert held_by_nodes(Neighbours("c", reporters, lambda _: []), {}) == {"a": 2, "b": 2}
    assert held_by_nodes(Neighbours("c", reporters, lambda _: []), {QUERY: 8}) == {"a": 2, "b": 1}, "made up"


@pytest.mark.parametrize(
    ("goes_on", "seconds", "is_silent"),
    [(False, 374, False), (False, 376, True), (True, 156, False), (True, 157, True)],
    ids=["late", "late for long", "lost, not overdue", "lost, overdue"],
)
def test_a_late_node_is_silent_after_six_minutes_or_sooner_if_its_partitions_go_on(
    goes_on: bool, seconds: int, is_silent: bool
) -> None:
    fleet: Any = SimpleNamespace(section=HoldingsSection(), clock=lambda: 10_000.0)
    catching_up: Any = SimpleNamespace(zone="checkpoints")
    standbys = StoreStandbys(catching_up, fleet, fleet, lambda: SimpleNamespace(), lambda: False)  # type: ignore[arg-type,return-value]
    for at, moved in ((9000.0, False), (9000.0 + seconds, goes_on)):
        reports = {"lost": report("lost", {0: 7, 1: 7}), "taker": report("taker", {0: 8, 1: 8} if moved else {})}
        told = {
            name: Told("checkpoints", name, each, at if name == "taker" else 9000.0, is_this_node=False)
            for name, each in reports.items()
        }
        reporters = [Reporter(name, each) for name, each in reports.items()]
        found = standbys._with_silence(told, held_by_nodes(Neighbours("me", reporters, lambda _: []), {}))
    assert {each.name: each.is_silent for each in found} == {"lost": is_silent, "taker": False}
