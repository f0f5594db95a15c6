"""A slice of ``./run matrix``: each Spark that is older than the project's is killed and goes on, also from its elders'.

On Python 3.12 and newer without Spark 3.5, which does not run there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.history import History, Left, Sessions
from tests.matrix.outcomes import Outcomes
from tests.matrix.sparks import NotInstalledError, sparks
from tests.support.daemons.node import Node

pytestmark = pytest.mark.timeout(1500)
KINDS = ["aggregation"]
CONFIGURED = Sessions("configured", {}, (None,))


def test_each_earlier_spark_goes_on_after_a_kill_from_clones_and_from_what_its_elders_have_left(
    node: Node, workspace: Path
) -> None:
    *earlier, _ = (spark for spark in sparks() if spark.runs_here())
    outcomes = Outcomes(print)
    left: list[Left] = []
    for spark in earlier:
        try:
            spark.python()
        except NotInstalledError as problem:
            pytest.skip(f"Spark {spark.version} can't be installed here: {problem}")
        history = History(spark, CONFIGURED, node, workspace, outcomes)
        history.live(KINDS, left[-1:])
        left.append(history.left(KINDS))
    assert outcomes.unexplained == []
