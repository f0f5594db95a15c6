"""The ring: whoever may keep copies of what a node holds reads its report, and the reports of the other ones that may."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.holdings.ring import SPAN, Ring

FLEETS = st.integers(0, 150).map(lambda count: [f"node{number}.0123abcd" for number in range(count)])
KNOWN = [f"node{number}.0123abcd" for number in (2, 1, 4, 5, 3)]


@given(names=FLEETS)
def test_who_may_keep_copies_knows_what_there_is_to_keep_and_who_else_may(names: list[str]) -> None:
    ring = Ring(names)
    for holder in names:
        candidates = ring.after(holder)
        assert len(candidates) == len(set(candidates)) == min(SPAN, len(names) - 1)
        assert holder not in candidates
        for candidate in candidates:
            assert holder in ring.before(candidate)
            assert {holder, *candidates} - {candidate} <= ring.neighbours(candidate)
        assert {*candidates} <= ring.neighbours(holder)


@given(names=FLEETS)
def test_a_node_has_no_more_neighbours_than_twice_the_span(names: list[str]) -> None:
    ring = Ring(names)
    for name in names:
        neighbours = ring.neighbours(name)
        assert len(neighbours) == min(2 * SPAN, len(names) - 1)
        assert name not in neighbours


@given(names=FLEETS, data=st.data())
def test_a_node_that_goes_changes_one_keeper_of_those_before_it(names: list[str], data: st.DataObject) -> None:
    if not names:
        return
    gone = data.draw(st.sampled_from(names))
    before, after = Ring(names), Ring(name for name in names if name != gone)
    for holder in names:
        lost = set(before.after(holder)) - set(after.after(holder))
        assert lost == ({gone} if holder in before.before(gone) else set())


def test_a_node_that_comes_back_with_an_empty_disk_has_its_place_again() -> None:
    names = [f"node{number}.0123abcd" for number in range(100)]
    again = ["node7.ffff0000" if name == "node7.0123abcd" else name for name in names]
    assert [name.replace("ffff0000", "0123abcd") for name in Ring(again).after("node3.0123abcd")] == Ring(names).after(
        "node3.0123abcd"
    )
    assert Ring(again).after("node7.ffff0000") == Ring(names).after("node7.0123abcd")


def test_a_node_need_not_be_on_the_ring() -> None:
    names = [f"node{number}.0123abcd" for number in range(100)]
    assert Ring(names[1:]).after(names[0]) == Ring(names).after(names[0])
    assert Ring(names[1:]).neighbours(names[0]) == Ring(names).neighbours(names[0])
    assert Ring([]).neighbours(names[0]) == set()


def test_the_order_never_changes() -> None:
    """Versions of Holdfast side by side must find the same."""
    assert Ring(f"node{number}.0123abcd" for number in range(6)).after("node0.0123abcd") == KNOWN
