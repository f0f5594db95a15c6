"""The steps of a run, and a file of what came of those that are done, with which another run goes on.

A step that was interrupted, or of which anything is wrong without a stated reason, is done again. A crash leaves a last line
that is cut off: its step is done again too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.matrix.outcomes import Outcome, Outcomes
from tests.matrix.sparks import Spark


class Steps:
    """The steps of the run in a directory. What came of those of an earlier run there is added to ``outcomes``."""

    def __init__(self, directory: Path, outcomes: Outcomes) -> None:
        self._file = directory / "steps.jsonl"
        self._outcomes = outcomes
        self._done: set[str] = set()
        self._file.touch()
        whole = [line for line in self._file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        self._file.write_text("".join(whole))
        for line in whole:
            name, found = json.loads(line)
            self._done.add(name)
            outcomes.add(*(Outcome(Spark(version), *rest) for version, *rest in found))

    def do(self, name: str, action: Callable[[], object]) -> None:
        """Do a step, unless it is done."""
        if name in self._done:
            return
        before = len(self._outcomes)
        action()
        found = self._outcomes.since(before)
        if not any(each.problem and not each.reason for each in found):
            with self._file.open("a") as file:
                file.write(json.dumps([name, [(each.spark.version, *each[1:]) for each in found]]) + "\n")
