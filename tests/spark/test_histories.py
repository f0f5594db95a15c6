"""A short history of a real query (``tests/histories/spark.py`` plays long ones, for each way in which Spark keeps state).

Batches, a kill in mid-batch, garbage, a sweep by the daemon; then the state of every retained batch is read by Spark's own
reader of state, the query restarts from the oldest and the newest of them, and another node goes on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.spark.flights_job import ROWS_OF_A_FILE, Job
from tests.support.spark.shapes import SHAPES, StateShape, at_the_pace_of_tests
from tests.support.spark.swept_history import History

RETAINED = 4
LAST = 12
COUNTED_TWICE = 2
"""Each flight by its aircraft and by its route."""


@pytest.mark.timeout(900)  # a minute where nobody else is at work
@pytest.mark.parametrize("shape", SHAPES[:1], ids=lambda shape: shape.name)
def test_every_retained_batch_can_be_restored_after_a_sweep(
    workspace: Path, make_node: NodeFactory, remote_files: Path, shape: StateShape
) -> None:
    pace = at_the_pace_of_tests(maintenance="1s", min_batches=RETAINED, deltas_for_snapshot=3)
    job = Job(workspace, settings={**shape.settings(), **pace})
    history = History(job, remote_files, workspace, RETAINED)
    first, second = make_node("first").start(), make_node("second")
    history.play(first, [LAST])
    swept = history.sweep(first)
    assert swept.plan.kept == []
    assert swept.plan.removed >= swept.planted
    assert (swept.leftovers, swept.lost, swept.planned_again) == (set(), set(), 0)
    first.stop()
    history.go_on(second.start(), LAST)
    retained = history.retained()
    assert retained[-1] == LAST - 1
    assert len(retained) >= RETAINED
    restarts = list(history.restarts([retained[0], retained[-1]]))
    assert [(each.commit, each.counted) for each in restarts] == [
        (batch, COUNTED_TWICE * ROWS_OF_A_FILE * (batch + 1)) for batch in retained
    ]
    assert [each.equal for each in restarts if each.equal is not None] == [True, True]
