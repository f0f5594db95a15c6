"""Measuring: every row on all of its targets in turn, round by round, so that what drifts hits all sides alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from tests.benchmarks.report import Line, line
from tests.benchmarks.requests import RequestCounter
from tests.benchmarks.rows import Row, Scale, Site, Target, Values


@dataclass
class Measured:
    """What is known of one row so far: values by target and by what they are, in the order of the rounds."""

    row: Row
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)

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
                    with self._site(row, target, kept, f"-{number}") as site:
                        measured.add(target, row.action(site))
            if self._counter is not None and row.things:
                for target in row.targets:
                    with self._site(row, target, kept, "-counted") as site:
                        self._count(measured, site, self._counter)
        return measured.lines()

    @contextmanager
    def _site(self, row: Row, target: Target, kept: Mapping[str, Site], suffix: str) -> Iterator[Site]:
        """Give the site that is kept for the target, or a new one."""
        with nullcontext(kept[target.name]) if target.name in kept else _made(row, target, suffix, self._scale) as site:
            self._settle()
            yield site

    def _count(self, measured: Measured, site: Site, counter: RequestCounter) -> None:
        name = site.target.name
        counts = counter.count(site.target.front, partial(measured.row.action, site))
        if counts is not None:
            measured.requests[name] = {kind: count / measured.row.things for kind, count in counts.most_common()}


def turned(targets: Sequence[Target], number: int) -> list[Target]:
    """Return the targets in another order each round: whoever comes after a certain other one does not always do so."""
    first = number % len(targets)
    order = [*targets[first:], *targets[:first]]
    return order if number // len(targets) % 2 == 0 else order[::-1]


@contextmanager
def _made(row: Row, target: Target, suffix: str, scale: Scale) -> Iterator[Site]:
    name = f"{row.name}{suffix}"
    site = Site(target, target.front / name, target.back / name, scale)
    try:
        row.setup(site)
        yield site
    finally:
        shutil.rmtree(site.front)
