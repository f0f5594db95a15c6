"""Which disk a new working directory comes to."""

from __future__ import annotations

import pytest

from holdfast.store import DiskSpace, Space
from holdfast.store.spread_tree import _share


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ((DiskSpace(1000, 500), 1), (DiskSpace(1000, 400), 1)),
        ((DiskSpace(1000, 400), 1), (DiskSpace(1000, 600), 2)),  # 300 and 250 above the reserve for each
        ((DiskSpace(1000, 150), 1), (DiskSpace(9000, 100), 1)),
        ((DiskSpace(1000, 101), 50), (DiskSpace(1000, 100), 1)),
        ((DiskSpace(1000, 300, 200, 11), 1), (DiskSpace(1000, 900, 200, 10), 1)),
        ((DiskSpace(1000, 300, 0, 0), 1), (DiskSpace(1000, 200, 200, 100), 1)),
        ((DiskSpace(1000, 90), 1), (DiskSpace(1000, 50), 1)),  # none has its reserve
    ],
)
def test_it_is_that_with_the_most_space_above_its_reserve_for_each_directory(
    better: tuple[DiskSpace, int], worse: tuple[DiskSpace, int]
) -> None:
    assert _share(*better, Space(10, 100)) > _share(*worse, Space(10, 100))
