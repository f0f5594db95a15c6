"""Measuring: every row on all of its targets in turn, round by round, so that what drifts hits all sides alike."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.benchmarks.report import Line, line
from tests.benchmarks.requests import RequestCounter
from tests.benchmarks.rows import Row, Scale, Site, Target, Values

_COUNTED = 0.1
"""How much of a row is done once more to count its requests: they don't vary."""
_REST_SECONDS = 6.0
"""ext4 gives no inode away that was freed within five seconds, and looks at all of them for each new file
(``recently_deleted`` in its ialloc.c)."""


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
            is_part = key and ("" in keys or key.rpartition(": ")[0] in keys)
            goals = {} if is_part else row.goals
            made = line(f"{row.name}: {key}" if key else row.name, row.what, row.unit, values, ours, goals)
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
        self._removed = -math.inf

    def run(self, row: Row) -> list[Line]:
        """Measure one row; return its lines."""
        self._rest()
        measured = Measured(row)
        sites = _Sites(row, self._scale)
        for number in range(min(self._rounds, row.most_rounds or self._rounds)):
            for target in turned(row.targets, number):
                self._progress(measured, number, target)
                site = sites.get(target, f"-{number}", 1.0)
                self._settle()
                measured.add(target, row.action(site))
        for target in row.targets if row.things else ():
            site = sites.get(target, "-counted", _COUNTED)
            self._settle()
            measured.requests[target.name] = self._requests(row, site)
        sites.remove()
        self._removed = time.monotonic()
        return measured.lines()

    def _rest(self) -> None:
        """Wait until what was removed after the row before no longer slows down who creates files."""
        time.sleep(max(0.0, self._removed + _REST_SECONDS - time.monotonic()))

    def _requests(self, row: Row, site: Site) -> dict[str, float] | None:
        """Return how many requests each thing takes, by kind; None where they can't be counted."""
        counts = self._counter.count(site.target.front, partial(row.action, site)) if self._counter else None
        things = site.part_of(row.things)
        return {kind: count / things for kind, count in counts.most_common()} if counts is not None else None


class _Sites:
    """The sites of one row. They are removed when the row is done; after an error everything goes at once (``targets``)."""

    def __init__(self, row: Row, scale: Scale) -> None:
        self._row = row
        self._scale = scale
        self._sites: dict[str, Site] = {}

    def get(self, target: Target, suffix: str, share: float) -> Site:
        """Return a site that is set up: a new one for each suffix, or the only one of the target."""
        row = self._row
        name = f"{row.name}{suffix}" if row.fresh else row.name
        site = self._sites.get(f"{target.name}/{name}")
        if site is None:
            share = share * target.share if row.fresh else 1.0
            site = Site(target, target.front / name, target.back / name, self._scale, share)
            row.setup(site)
            self._sites[f"{target.name}/{name}"] = site
        return site

    def remove(self) -> None:
        """Remove all sites, by the front."""
        for site in self._sites.values():
            self._row.teardown(site)
            shutil.rmtree(site.front)


def turned(targets: Sequence[Target], number: int) -> list[Target]:
    """Return the targets in another order each round: whoever comes after a certain other one does not always do so."""
    first = number % len(targets)
    order = [*targets[first:], *targets[:first]]
    return order if number // len(targets) % 2 == 0 else order[::-1]
