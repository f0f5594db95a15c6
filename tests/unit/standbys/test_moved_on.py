"""A partition that has moved out of sight: its standby finds that the node which had it has fallen behind, and lets go."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.holdings.report import NodeReport, Partition, QueryState, StoreState
from holdfast.standbys.duties import Duties, Neighbours, Reporter, duties_of
from holdfast.standbys.moved_on import Expected, Looks

QUERY, OTHER = "team/q", "team/other"


def report(node: str, version: int, *, is_copy: bool = False) -> NodeReport:
    state = StoreState(0, 3, "default", version, 100, is_copy=is_copy, missing_bytes=0 if is_copy else None)
    return NodeReport(node=node, cores=4, standbys=1, queries=[QueryState(QUERY, [state])])


def looked(looks: Looks, holder: NodeReport, newest: int) -> Expected:
    reports = {"holder": holder, "me": report("me", newest, is_copy=True)}
    return looks.expected("me", reports, {QUERY: newest})


def duties(reports: Mapping[str, NodeReport], expected: Expected, newest: int) -> Duties:
    reporters = [Reporter(name, told) for name, told in reports.items()]
    neighbours = Neighbours("me", reporters, lambda holder: [name for name in reports if name != holder])
    return duties_of(neighbours, {}, 1, {QUERY: newest}, expected)


def test_a_report_that_has_not_changed_may_be_old() -> None:
    looks = Looks()
    for newest in (10, 20, 30, 40):
        assert not looked(looks, report("holder", 10), newest).is_behind("holder", QUERY, 10)


def test_a_changed_report_has_what_was_committed_two_looks_ago_if_its_node_still_works_with_the_query() -> None:
    looks = Looks()
    looked(looks, report("holder", 10), 10)
    looked(looks, report("holder", 10), 20)
    expected = looked(looks, report("holder", 15), 30)
    assert not expected.is_behind("holder", QUERY, 10), "committed before the look before the last one"
    assert expected.is_behind("holder", QUERY, 9)
    assert not expected.is_behind("holder", OTHER, 1)
    assert not expected.is_behind("stranger", QUERY, 1)
    assert looked(looks, report("holder", 15), 40).is_behind("holder", QUERY, 9), "and until it tells anew"
    assert looked(looks, report("holder", 16), 50).is_behind("holder", QUERY, 29)


def test_a_node_knows_at_once_what_it_no_longer_works_with() -> None:
    looks = Looks()
    mine = {"me": report("me", 10)}
    for newest in (10, 20):
        assert not looks.expected("me", mine, {QUERY: newest}).is_behind("me", QUERY, 10)
    assert not looks.expected("me", mine, {QUERY: 30}).is_behind("me", QUERY, 10)
    assert looks.expected("me", mine, {QUERY: 40}).is_behind("me", QUERY, 10)


def test_a_query_goes_on_if_it_has_committed_since_the_last_look() -> None:
    looks = Looks()
    assert looks.expected("me", {}, {QUERY: 10}).going_on == frozenset()
    assert looks.expected("me", {}, {QUERY: 10, OTHER: 3}).going_on == frozenset()
    assert looks.expected("me", {}, {QUERY: 11, OTHER: 3}).going_on == {QUERY}


def test_a_standby_lets_go_of_a_partition_that_has_moved_out_of_sight() -> None:
    reports = {"holder": report("holder", 10), "me": report("me", 40, is_copy=True)}
    partition = Partition(QUERY, 3)
    assert duties(reports, Expected(), 40).stands_by == {partition: frozenset({0})}
    behind = Expected({"holder": {QUERY: 20}}, frozenset({QUERY}))
    assert duties(reports, behind, 40).stands_by == {}
    stopped = Expected({"holder": {QUERY: 20}})
    assert duties(reports, stopped, 40).stands_by == {partition: frozenset({0})}, "nobody works with it: it may come back"


def test_what_no_longer_runs_here_needs_no_standby() -> None:
    reports = {"me": report("me", 10), "other": report("other", 3, is_copy=True)}
    assert duties(reports, Expected(), 40).uncovered == frozenset(), "other has a copy"
    alone = {"me": report("me", 10)}
    assert duties(alone, Expected(), 40).uncovered == {Partition(QUERY, 3)}
    assert duties(alone, Expected({"me": {QUERY: 20}}, frozenset({QUERY})), 40).uncovered == frozenset()
