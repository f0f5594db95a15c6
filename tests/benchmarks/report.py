"""From measured values to ratios, and the report as a file. Pure: nothing here measures or prints.

Only what was measured in the same round is compared: a ratio is the median over the rounds of ours divided by the peer's,
so that what slows both (the disk, neighbours, the processor's clock) cancels out. A ratio above 1 is always good for
Holdfast, whether the unit is a speed or a time.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping, Sequence

import msgspec

FORMAT = 1


class Unit(enum.Enum):
    """What values are given in."""

    PER_SECOND = "1/s"
    MIB_PER_SECOND = "MiB/s"
    MILLISECONDS = "ms"
    MIB = "MiB"
    REQUESTS = "requests"

    @property
    def more_is_better(self) -> bool:
        """Whether a larger value is the better one."""
        return self in (Unit.PER_SECOND, Unit.MIB_PER_SECOND)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a value of ours has to reach: a ratio to ``peer`` of ``at_least``, at most the peer's value and ``at_most_more``,
    or at most the value ``at_most``.
    """

    peer: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    at_most_more: float | None = None

    def met(self, ratios: Mapping[str, float], more: Mapping[str, float], median: float) -> bool | None:
        """Say whether a target with these ratios, differences and median reaches the goal; None when that can't be said."""
        if self.at_most is not None:
            return median <= self.at_most
        if self.at_most_more is not None and self.peer is not None:
            return more[self.peer] <= self.at_most_more if self.peer in more else None
        if self.peer is None or self.at_least is None or self.peer not in ratios:
            return None
        return ratios[self.peer] >= self.at_least

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"at most {figure(self.at_most)}"
        if self.at_most_more is not None:
            return f"at most {figure(self.at_most_more)} more than {self.peer}"
        return f"at least {self.at_least:g} of {self.peer}" if self.peer else ""


class Result(msgspec.Struct, kw_only=True):
    """What one target reached: one value a round, in the order of the rounds.

    ``more`` is by how much the values are above a peer's, the median over the rounds; told where a goal is about it.
    ``requests`` are FUSE requests for each thing done, by kind; None where they can't be counted. Goals are set for targets
    of ours.
    """

    values: list[float]
    median: float = 0.0
    ours: bool = False
    ratios: dict[str, float] = msgspec.field(default_factory=dict)
    more: dict[str, float] = msgspec.field(default_factory=dict)
    met: bool | None = None
    requests: dict[str, float] | None = None
    goal: Goal | None = None


class Line(msgspec.Struct, kw_only=True):
    """One line of the table: the same thing, measured on several targets."""

    row: str
    what: str
    unit: Unit
    results: dict[str, Result]


class Report(msgspec.Struct, kw_only=True):
    """All of one run. ``notes`` are what a reader must know to read the figures; times are seconds since the epoch."""

    format: int = FORMAT
    command: str
    began: float
    seconds: float
    rounds: int
    machine: dict[str, str]
    targets: dict[str, str]
    notes: list[str]
    lines: list[Line]

    def encoded(self) -> bytes:
        """Return the report as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def decoded(data: bytes) -> Report:
    """Read what ``encoded`` wrote. Raises ``msgspec.DecodeError``."""
    return msgspec.json.decode(data, type=Report)


def ratio(ours: Sequence[float], peers: Sequence[float], *, more_is_better: bool) -> float | None:
    """Return the median of the rounds' ratios; None when there are no two values of one round, or a peer's is 0."""
    pairs = [(our, peer) if more_is_better else (peer, our) for our, peer in zip(ours, peers, strict=False)]
    ratios = [above / below for above, below in pairs if below]
    return statistics.median(ratios) if ratios else None


def line(
    row: str, what: str, unit: Unit, values: Mapping[str, Sequence[float]], ours: frozenset[str], goals: Mapping[str, Goal]
) -> Line:
    """Put together what all targets reached; ``goals`` are those of targets of ours, by name."""
    results = {name: Result(values=list(numbers), ours=name in ours) for name, numbers in values.items()}
    for name, result in results.items():
        if not result.values:
            continue
        result.median = statistics.median(result.values)
        if name not in ours:
            continue
        for peer, other in results.items():
            found = ratio(result.values, other.values, more_is_better=unit.more_is_better) if peer not in ours else None
            if found is not None:
                result.ratios[peer] = found
        result.goal = goals.get(name)
        if result.goal is not None:
            if result.goal.at_most_more is not None:
                result.more = _differences(result, results, ours)
            result.met = result.goal.met(result.ratios, result.more, result.median)
    return Line(row=row, what=what, unit=unit, results=results)


def _differences(result: Result, results: Mapping[str, Result], ours: frozenset[str]) -> dict[str, float]:
    pairs = {
        peer: list(zip(result.values, other.values, strict=False)) for peer, other in results.items() if peer not in ours
    }
    return {peer: statistics.median(our - value for our, value in rounds) for peer, rounds in pairs.items() if rounds}


def missed(lines: Sequence[Line]) -> list[tuple[Line, str]]:
    """Return each line whose goal a target of ours does not reach, with the target's name."""
    return [(line, name) for line in lines for name, result in line.results.items() if result.met is False]


def figure(value: float) -> str:
    """Return a number as people read it: three digits that count, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
