"""Collects the outcomes of the matrix, and makes its table: rows for kinds of query, ways to keep state, and operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tests.matrix.limits import LIMITS
from tests.matrix.operations import IN_ORDER, is_of_other_version
from tests.matrix.queries import BY_NAME, KINDS
from tests.matrix.sparks import Spark
from tests.support.spark.shapes import SHAPES

if TYPE_CHECKING:
    from tests.matrix.job import Query

_NONE = "–"
_LONGEST = 600


class Outcome(NamedTuple):
    """An operation on a query, of a kind and a shape, under a Spark: what is wrong ("": nothing)."""

    spark: Spark
    operation: str
    query: str
    kind: str
    shape: str
    problem: str

    @property
    def reason(self) -> str:
        """Return the stated reason why it can't be; "" if there is none."""
        return next((limit.reason for limit in LIMITS if limit.holds_for(self)), "")

    def __str__(self) -> str:
        what = " ".join(word for word in (self.spark.version, self.query, self.operation) if word)
        return f"{what}: {'ok' if not self.problem else self.reason or f'WRONG: {self.problem[:_LONGEST]}'}"


class Outcomes:
    """All outcomes so far; each is told by ``tell`` at once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._all: list[Outcome] = []

    def note(self, spark: Spark, operation: str, query: Query | None, problem: str) -> None:
        """Note an outcome; without a query it is of the whole driver."""
        kind, shape, name = (query.kind, query.shape.name if query.shape else "", query.name) if query else ("", "", "")
        self.add(Outcome(spark, operation, name, kind, shape, problem))
        self._tell(str(self._all[-1]))

    def add(self, *outcomes: Outcome) -> None:
        """Add outcomes of an earlier run."""
        self._all += outcomes

    def since(self, number: int) -> list[Outcome]:
        """Return all after so many of them."""
        return self._all[number:]

    def __len__(self) -> int:
        return len(self._all)

    @property
    def unexplained(self) -> list[Outcome]:
        """Return what is wrong without a stated reason."""
        return [each for each in self._all if each.problem and not each.reason]

    def table(self) -> str:
        """Return the table, in Markdown, with the reasons below it."""
        sparks = sorted({each.spark for each in self._all}, key=lambda spark: spark.release)
        lines = ["| | " + " | ".join(spark.version for spark in sparks) + " |", "|---|" + "---|" * len(sparks)]
        notes: list[str] = []
        for title, chosen in self._rows():
            cells = [self._cell(title, [each for each in chosen if each.spark == spark], spark, notes) for spark in sparks]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
        return "\n".join([*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), ""])

    def _rows(self) -> Iterable[tuple[str, list[Outcome]]]:
        own = [each for each in self._all if not is_of_other_version(each.operation)]
        for kind in KINDS:
            yield kind.name, [each for each in own if each.kind == kind.name and not each.shape]
        for shape in SHAPES:
            yield shape.title, [each for each in own if each.shape == shape.name]
        for operation in dict.fromkeys(each.operation for each in sorted(self._all, key=_place)):
            yield operation, [each for each in self._all if each.operation == operation]

    def _cell(self, title: str, chosen: list[Outcome], spark: Spark, notes: list[str]) -> str:
        if not chosen:
            kind = BY_NAME.get(title)
            return _NONE if kind is None or kind.since <= spark.release else f"since {'.'.join(map(str, kind.since))}"
        bad = [each for each in chosen if each.problem]
        if any(not each.reason for each in bad):
            return "**no**"
        for each in bad:
            if each.reason not in notes:
                notes.append(each.reason)
        marks = sorted({notes.index(each.reason) + 1 for each in bad})
        return ("no" if len(bad) == len(chosen) else "yes") + (f" ({', '.join(map(str, marks))})" if marks else "")


def _place(outcome: Outcome) -> int:
    return IN_ORDER.index(outcome.operation) if outcome.operation in IN_ORDER else len(IN_ORDER)
