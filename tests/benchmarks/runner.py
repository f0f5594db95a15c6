"""Measuring: every row on all of its targets in turn, round by round, so that what drifts hits all sides alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.benchmarks.report import Line, line
from tests.benchmarks.requests import RequestCounter
from tests.benchmarks.rows import Row, Scale, Site, Target, Values

_COUNTED = 0.1
"""How much of a row is done once more to count its requests: they don't vary."""


@dataclass
class Measured:
    """What is known of one row so far: values by target and by what they are, in the order of the rounds."""

    row: Row
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    requests: dict[str, dict[str, float] | None] = field(default_factory=dict)

    def add(self, target: Target, values: Values) -> None:
        """Add the values of one round."""
        for key, value in values.items():
            self.values.setdefault(target.name, {}).setdefault(key, []).append(value)

    def lines(self) -> list[Line]:
        """Return a line for each kind of value."""
        row = self.row
        keys = dict.fromkeys(key for values in self.values.values() for key in values)
        ours = frozenset(target.name for target in row.targets if target.ours)
        lines = []
        for key in keys:
            values = {target.name: self.values.get(target.name, {}).get(key, []) for target in row.targets}
            made = line(f"{row.name}: {key}" if key else row.name, row.what, row.unit, values, ours, row.goals)
            for name, result in made.results.items():
                result.requests = self.requests.get(name)
            lines.append(made)
        return lines


class Runner:
    """Runs rows. ``settle`` returns when nobody is busy with what was done before; ``progress`` hears of each value."""

    def __init__(
        self,
        scale: Scale,
        rounds: int,
        counter: RequestCounter | None,
        settle: Callable[[], None],
        progress: Callable[[Measured, int, Target], None],
    ) -> None:
        self._scale = scale
        self._rounds = rounds
        self._counter = counter
        self._settle = settle
        self._progress = progress

    def run(self, row: Row) -> list[Line]:
        """Measure one row; return its lines."""
        measured = Measured(row)
        with ExitStack() as stack:
            kept = {}
            if not row.fresh:
                kept = {target.name: stack.enter_context(_made(row, target, "", self._scale)) for target in row.targets}
            for number in range(min(self._rounds, row.most_rounds or self._rounds)):
                for target in turned(row.targets, number):
                    self._progress(measured, number, target)
                    with self._site(row, target, kept, f"-{number}", 1.0) as site:
                        measured.add(target, row.action(site))
            for target in row.targets if row.things else ():
                with self._site(row, target, kept, "-counted", _COUNTED) as site:
                    measured.requests[target.name] = self._requests(row, site)
        return measured.lines()

    @contextmanager
    def _site(self, row: Row, target: Target, kept: Mapping[str, Site], suffix: str, share: float) -> Iterator[Site]:
        """Give the site that is kept for the target, or a new one."""
        with ExitStack() as stack:
            site = kept.get(target.name) or stack.enter_context(_made(row, target, suffix, self._scale, share))
            self._settle()
            yield site

    def _requests(self, row: Row, site: Site) -> dict[str, float] | None:
        """Return how many requests each thing takes, by kind; None where they can't be counted."""
        counts = self._counter.count(site.target.front, partial(row.action, site)) if self._counter else None
        things = site.part_of(row.things)
        return {kind: count / things for kind, count in counts.most_common()} if counts is not None else None


def turned(targets: Sequence[Target], number: int) -> list[Target]:
    """Return the targets in another order each round: whoever comes after a certain other one does not always do so."""
    first = number % len(targets)
    order = [*targets[first:], *targets[:first]]
    return order if number // len(targets) % 2 == 0 else order[::-1]


@contextmanager
def _made(row: Row, target: Target, suffix: str, scale: Scale, share: float = 1.0) -> Iterator[Site]:
    name = f"{row.name}{suffix}"
    site = Site(target, target.front / name, target.back / name, scale, share * target.share if row.fresh else 1.0)
    row.setup(site)
    yield site
    shutil.rmtree(site.front)  # after an error everything goes at once (``targets``)
