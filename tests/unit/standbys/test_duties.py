"""What falls to a node as a standby, by what the nodes have told; what wrong reports can and can't do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.holdings.report import NodeReport, Partition, QueryState, StoreState
from holdfast.standbys.duties import Duties, Neighbours, Portion, Reporter, duties_of, merged

QUERY = "team/q"
PARTITIONS = range(12)


def own(partition: int, version: int = 7, operator: int = 0) -> StoreState:
    return StoreState(operator, partition, "default", version, 100)


def copy(partition: int, missing_bytes: int | None = 0, version: int = 7) -> StoreState:
    return StoreState(0, partition, "default", version, 90, is_copy=True, missing_bytes=missing_bytes)


def reporter(name: str, stores: Iterable[StoreState] = (), *, is_silent: bool = False, **report: object) -> Reporter:
    told = NodeReport(node=name, cores=4, queries=[QueryState(QUERY, list(stores))], **{"standbys": 1, **report})  # type: ignore[arg-type]
    return Reporter(f"{name}.01234567", told, is_silent)


def duties(me: str, reporters: Sequence[Reporter], copies: int = 1, newest: int = 0) -> Duties:
    names = [each.name for each in reporters]
    neighbours = Neighbours(f"{me}.01234567", reporters, lambda holder: [name for name in names if name != holder])
    return duties_of(neighbours, {}, copies, {QUERY: newest} if newest else {})


def stands_by(me: str, reporters: Sequence[Reporter], **keywords: int) -> set[int]:
    return {partition.number for partition in duties(me, reporters, **keywords).stands_by}


def test_each_partition_falls_to_one_other_node() -> None:
    nodes = [reporter("a", map(own, PARTITIONS)), reporter("b"), reporter("c")]
    b, c = stands_by("b", nodes), stands_by("c", nodes)
    assert stands_by("a", nodes) == set()
    assert b | c == set(PARTITIONS)
    assert b & c == set()
    assert b
    assert c


def test_all_operators_of_a_partition_fall_to_the_same_node() -> None:
    nodes = [reporter("a", [own(3, operator=0), own(3, operator=2)]), reporter("b")]
    assert duties("b", nodes).stands_by == {Partition(QUERY, 3): frozenset({0, 2})}


def test_operators_that_others_make_up_cost_nothing() -> None:
    made_up = [own(3, version=5, operator=number) for number in range(50_000)]
    nodes = [reporter("a", [own(3, version=7, operator=2)]), reporter("b"), reporter("c", made_up, standbys=0)]
    assert duties("b", nodes).stands_by == {Partition(QUERY, 3): frozenset({2})}
    assert len(duties("b", [reporter("b"), reporter("c", made_up)]).stands_by[Partition(QUERY, 3)]) == 64


def test_who_has_worked_with_the_newest_version_is_the_holder_and_copies_make_none() -> None:
    nodes = [reporter("a", [own(0, 7)]), reporter("b", [own(0, 9)]), reporter("c", [copy(0, 0, 12)])]
    assert stands_by("a", nodes) | stands_by("c", nodes) == {0}
    assert stands_by("b", nodes) == set()


def test_a_standby_whose_holder_is_not_known_stays_and_nobody_else_begins() -> None:
    nodes = [reporter("b", [copy(0, 5)]), reporter("c", [copy(0, None)]), reporter("d")]
    assert [stands_by(name, nodes) for name in "bcd"] == [{0}, set(), set()]


def test_drained_silent_and_unwilling_nodes_get_nothing() -> None:
    nodes = [
        reporter("a", map(own, PARTITIONS)),
        reporter("drained", is_draining=True),
        reporter("silent", is_silent=True),
        reporter("before", standbys=0),
        reporter("b"),
    ]
    assert [stands_by(name, nodes) for name in ("drained", "silent", "before")] == [set(), set(), set()]
    assert stands_by("b", nodes) == set(PARTITIONS)


def test_a_node_that_is_not_after_the_holder_on_the_ring_gets_nothing_of_it() -> None:
    nodes = [reporter("a", map(own, PARTITIONS)), reporter("b"), reporter("c")]
    neighbours = Neighbours("c.01234567", nodes, lambda _: ["b.01234567"])
    assert duties_of(neighbours, {}, 1, {}).stands_by == {}
    assert len(duties_of(replace(neighbours, me="b.01234567"), {}, 1, {}).stands_by) == len(PARTITIONS)


def test_two_daemons_of_one_host_keep_no_copies_of_each_other_if_there_is_another_host() -> None:
    second = Reporter("a.99999999", reporter("a").report)
    nodes = [reporter("a", map(own, PARTITIONS)), second, reporter("b")]
    assert stands_by("b", nodes) == set(PARTITIONS)


def test_partitions_without_a_complete_copy_are_uncovered_on_their_holder_alone() -> None:
    held = [reporter("a", map(own, PARTITIONS)), reporter("b", [copy(0), copy(1, 1), copy(2, None)])]
    uncovered = {partition.number for partition in duties("a", held).uncovered}
    assert uncovered == set(PARTITIONS) - {0}
    assert duties("b", held).uncovered == frozenset()
    alone = [reporter("a", [own(0)])]
    assert duties("a", alone).uncovered == {Partition(QUERY, 0)}


def test_a_complete_copy_on_a_node_that_is_no_standby_does_not_count() -> None:
    nodes = [reporter("a", [own(0)], rack="x"), reporter("b", [copy(0)], rack="x"), reporter("c", rack="y")]
    assert duties("a", nodes).uncovered == {Partition(QUERY, 0)}


def test_versions_that_no_checkpoint_has_reached_make_nobody_the_holder() -> None:
    planted = reporter("mallory", [own(partition, 2**63 - 1) for partition in PARTITIONS], standbys=0)
    honest = [reporter("a", map(own, PARTITIONS)), reporter("b"), reporter("c")]
    for me in "bc":
        assert stands_by(me, [*honest, planted], newest=7) == stands_by(me, honest, newest=7)
    assert duties("a", [*honest, planted]).uncovered == duties("a", honest).uncovered, "it knows its own versions"


def test_a_report_may_be_ahead_of_the_commit_that_was_seen() -> None:
    nodes = [reporter("a", [own(0, 900)]), reporter("b", [own(0, 7)])]
    assert stands_by("b", nodes, newest=8) == {0}


@given(
    held=st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(PARTITIONS), st.integers(1, 5), st.booleans())),
    copies=st.integers(1, 3),
)
def test_no_holder_stands_by_and_no_partition_has_more_standbys_than_copies(
    held: list[tuple[str, int, int, bool]], copies: int
) -> None:
    stores: dict[str, list[StoreState]] = {name: [] for name in "abcde"}
    for name, partition, version, is_copy in held:
        stores[name].append(copy(partition, None, version) if is_copy else own(partition, version))
    nodes = [reporter(name, stores[name]) for name in "abcde"]
    found = {name: stands_by(name, nodes, copies=copies) for name in "abcde"}
    for partition in PARTITIONS:
        of_partition = [(name, version) for name, number, version, is_copy in held if number == partition and not is_copy]
        standbys = {name for name in found if partition in found[name]}
        assert len(standbys) == (copies if of_partition else 0)
        most = max((version for _, version in of_partition), default=0)
        newest = {name for name, version in of_partition if version == most}
        assert len(newest & standbys) < max(1, len(newest)), "the holder is no standby"


def test_what_a_node_holds_of_a_partitions_stores_counts_together() -> None:
    portion = merged(merged(None, Portion(7, 10, None)), Portion(0, 5, 3))
    assert portion == Portion(7, 15, 3)
    assert merged(Portion(0, 1, 4), Portion(0, 1, 9)) == Portion(0, 2, 9)
