"""The steps of the matrix: what is done is not done again; what was interrupted, or came to something wrong, is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.operations import PLACEMENT
from tests.matrix.outcomes import Outcomes
from tests.matrix.sparks import Spark
from tests.matrix.steps import Steps

SPARK = Spark("4.1.4")


class Run:
    """A run in a directory, whose steps note outcomes with the given problems."""

    def __init__(self, directory: Path) -> None:
        self.outcomes = Outcomes(lambda said: None)
        self.done: list[str] = []
        self._steps = Steps(directory, self.outcomes)

    def do(self, name: str, *problems: str) -> None:
        def note() -> None:
            self.done.append(name)
            for problem in problems:
                self.outcomes.note(SPARK, PLACEMENT, None, problem)

        self._steps.do(name, note)


def test_a_step_that_is_done_is_not_done_again_and_its_outcomes_are_known(tmp_path: Path) -> None:
    Run(tmp_path).do("first", "", "")
    later = Run(tmp_path)
    assert [(each.spark, each.operation, each.problem) for each in later.outcomes.since(0)] == [(SPARK, PLACEMENT, "")] * 2
    later.do("first", "")
    later.do("second", "")
    assert later.done == ["second"]
    assert len(later.outcomes) == 3


def test_a_step_with_a_wrong_outcome_is_done_again(tmp_path: Path) -> None:
    Run(tmp_path).do("first", "", "no")
    later = Run(tmp_path)
    assert len(later.outcomes) == 0
    later.do("first", "")
    assert later.done == ["first"]
    assert later.outcomes.unexplained == []


def test_a_step_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    Run(tmp_path).do("first", "")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Steps(tmp_path, Outcomes(lambda said: None)).do("second", interrupted)
    with (tmp_path / "steps.jsonl").open("a") as file:
        file.write('["third", [["4.1.4", "')  # as a crash leaves it
    later = Run(tmp_path)
    later.do("second", "")
    assert later.done == ["second"]
    assert len(Run(tmp_path).outcomes) == 2
