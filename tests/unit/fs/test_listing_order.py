"""In which order names are listed: by numbers that depend on the names alone, all different, in ascending order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.digest import position_of
from holdfast.fs.namespace import listing
from holdfast.fs.namespace.listing import ordered

NAMES = st.sets(st.binary(min_size=1, max_size=8))


@given(NAMES)
def test_every_name_has_a_position_of_its_own(names: set[bytes]) -> None:
    positions, in_order = ordered(names)
    assert set(in_order) == names
    assert len(in_order) == len(names)
    assert positions == sorted(set(positions))
    assert all(position > 2 for position in positions), "offsets 1 and 2 are those of . and .."


@given(NAMES, NAMES)
def test_what_comes_and_goes_moves_nobody_else(names: set[bytes], others: set[bytes]) -> None:
    before = dict(zip(*reversed(ordered(names)), strict=True))
    after = dict(zip(*reversed(ordered(names | others)), strict=True))
    assert all(after[name] == position for name, position in before.items())


def test_names_with_one_number_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    last_of_a_bucket = (1 << 62 - 10) - 1
    numbers = {b"a": last_of_a_bucket, b"b": last_of_a_bucket, b"c": last_of_a_bucket, b"d": last_of_a_bucket + 1}
    monkeypatch.setattr(listing, "position_of", numbers.__getitem__)
    positions, in_order = ordered(numbers)
    assert in_order == [b"a", b"b", b"c", b"d"]
    assert positions == [last_of_a_bucket + 3 + number for number in range(4)]


def test_the_order_is_that_of_the_numbers() -> None:
    names = [b"file-%d" % number for number in range(5000)]
    assert ordered(names)[1] == sorted(names, key=position_of)
