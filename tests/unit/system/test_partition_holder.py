"""The holder of a partition: one rule for daemons, drivers and the command line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import standby_rows
from holdfast.control.messages import HeldQueryInfo, HeldStoreInfo, HoldingsInfo, HoldingsReply
from holdfast.holdings.report import NodeReport, Partition, QueryState, StoreState
from holdfast.standbys.duties import Neighbours, Reporter, duties_of
from holdfast.system.partition_holder import Claim, holder_of_partition
from holdfast_spark.placement.driver import Executor
from holdfast_spark.placement.news import by_partition

QUERY, PATH = "team/q", "/m/checkpoints/team/q"
Stores = list[tuple[str, int, int, bool]]
"""The name, version and size of a node's state stores, and whether they are copies."""
STORES = st.lists(
    st.tuples(st.sampled_from(["left", "right"]), st.integers(1, 4), st.integers(0, 3), st.booleans()),
    max_size=2,
    unique_by=lambda store: store[0],
)
HELD = st.dictionaries(st.sampled_from(["a", "a-b", "b", "c"]), STORES, min_size=1)


@pytest.mark.parametrize(
    ("claims", "holder"),
    [
        ({}, None),
        ({"a": Claim(0, 100, "a")}, None),
        ({"a": Claim(7, 100, "a"), "b": Claim(9, 1, "b")}, "b"),
        ({"a": Claim(7, 100, "a"), "b": Claim(7, 1, "b")}, "a"),
        ({"b": Claim(7, 1, "b"), "a": Claim(7, 100, "a"), "c": Claim(0, 900, "c")}, "a"),
        ({"a": Claim(7, 100, "a"), "b": Claim(7, 100, "b")}, "b"),
        ({"a.1": Claim(7, 100, "a"), "a-b.1": Claim(7, 100, "a-b")}, "a-b.1"),
        ({"a.2": Claim(7, 100, "a"), "a.1": Claim(7, 100, "a")}, "a.2"),
    ],
)
def test_the_newest_version_then_the_most_bytes_then_the_name_decide(
    claims: Mapping[str, Claim], holder: str | None
) -> None:
    assert holder_of_partition(claims) == holder


def test_a_claim_is_about_all_stores_of_a_partition_and_copies_add_bytes_alone() -> None:
    claim = Claim(0, 0, "a").also(7, 10, is_copy=False).also(9, 5, is_copy=True).also(6, 1, is_copy=False)
    assert claim == Claim(7, 16, "a")


@given(held=HELD)
def test_daemons_drivers_and_the_command_line_name_the_same_holder(held: Mapping[str, Stores]) -> None:
    reporters = [Reporter(f"{name}.01234567", _report(name, stores)) for name, stores in held.items()]
    by_daemons = {
        reporter.report.node
        for reporter in reporters
        if Partition(QUERY, 3) in duties_of(Neighbours(reporter.name, reporters, lambda _: []), {}, 0, {}).uncovered
    }
    infos = [_info(name, stores) for name, stores in held.items()]
    placed = by_partition(infos, [Executor(name, name, 4) for name in held], PATH).get(3, {})
    by_drivers = {name for name, each in placed.items() if each.ran_last}
    by_command = {row[2] for row in standby_rows.rows(HoldingsReply(nodes=infos))} - {"–"}
    assert by_daemons == by_drivers == by_command
    has_worked = any(not is_copy for stores in held.values() for _, _, _, is_copy in stores)
    assert len(by_daemons) == has_worked


def _report(name: str, stores: Stores) -> NodeReport:
    states = [StoreState(0, 3, store, version, size, is_copy) for store, version, size, is_copy in stores]
    return NodeReport(node=name, cores=4, standbys=1, queries=[QueryState(QUERY, states)])


def _info(name: str, stores: Stores) -> HoldingsInfo:
    held = [HeldStoreInfo(0, 3, store, version, size, is_copy) for store, version, size, is_copy in stores]
    return HoldingsInfo(
        zone="checkpoints",
        node=name,
        hosts=[],
        cores=4,
        draining=False,
        told=1.0,
        this_node=False,
        queries=[HeldQueryInfo(PATH, held)],
    )
