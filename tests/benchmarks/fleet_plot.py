"""A day of a fleet as a picture: partitions that waited for a fetch, partitions without a copy, and balance. Pure: SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.benchmarks.panels import legend, opening
from tests.benchmarks.plot import COLOURS

_LEFT, _WIDTH, _PANEL, _GAP, _TOP, _MARGIN = 90, 860, 150, 52, 84, 20
_HOURS = 24
_TITLE = "A day of 400 nodes with 20,000 partitions"
_MARKS = ((7.5, "drains"), (12, "all restarted, ten of a rack at a time"), (16, "a rack"), (18, "two at once"))


class Sample(NamedTuple):
    """The fleet at an hour of the day.

    ``waited``: partitions that have had to be fetched first so far. ``uncovered``: those without a complete copy elsewhere.
    ``fewest``, ``most``: the partitions of a node, as parts of its share.
    """

    hour: float
    waited: int
    uncovered: int
    fewest: float
    most: float


def plot(days: Mapping[str, Sequence[Sample]]) -> str:
    """Draw each day in three panels, one above the other."""
    height = _TOP + 3 * _PANEL + 2 * _GAP + 46
    most_waited = _round_up(max(sample.waited for samples in days.values() for sample in samples))
    most_uncovered = _round_up(max(sample.uncovered for sample in list(days.values())[-1][12:]))
    panels = [
        ("moved, and had to be fetched first: so far", most_waited),
        (f"without a complete copy on another node ({list(days)[-1]})", most_uncovered),
        ("fewest and most partitions of a node, of its share", 2.0),
    ]
    body = [
        *opening(_TITLE, _WIDTH, height),
        *legend(list(days), _LEFT, 220, 36),
    ]
    for number, (title, most) in enumerate(panels):
        body += _panel(_top(number), title, most)
    for number, samples in enumerate(days.values()):
        body.append(_line(number, _top(0), most_waited, [(sample.hour, sample.waited) for sample in samples]))
        body.append(_line(number, _top(2), 2.0, [(sample.hour, sample.fewest) for sample in samples]))
        body.append(_line(number, _top(2), 2.0, [(sample.hour, sample.most) for sample in samples]))
    last = list(days.values())[-1]
    body.append(_line(len(days) - 1, _top(1), most_uncovered, [(sample.hour, sample.uncovered) for sample in last]))
    body += [
        f'  <text class="small" x="{_x(hour):.1f}" y="{_TOP - 24}" text-anchor="middle">{text}</text>'
        for hour, text in _MARKS
    ]
    body += [
        f'  <text class="small" x="{_x(hour):.1f}" y="{height - 14}" text-anchor="middle">{hour}:00</text>'
        for hour in range(0, _HOURS + 1, 3)
    ]
    return "\n".join([*body, "</svg>", ""])


def _panel(top: float, title: str, most: float) -> Iterator[str]:
    yield f'  <text class="small" x="{_LEFT}" y="{top - 8}">{escape(title)}</text>'
    for part in (0.0, 0.5, 1.0):
        y = top + _PANEL * (1 - part)
        yield f'  <path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _MARGIN}"/>'
        yield f'  <text class="small" x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{most * part:,g}</text>'


def _line(number: int, top: float, most: float, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{_x(hour):.1f},{top + _PANEL * (1 - min(value, most) / most):.1f}" for hour, value in points)
    return f'  <polyline fill="none" stroke="{COLOURS[number]}" stroke-width="1.6" points="{path}"/>'


def _top(panel: int) -> float:
    return _TOP + panel * (_PANEL + _GAP)


def _x(hour: float) -> float:
    return _LEFT + (_WIDTH - _MARGIN - _LEFT) * hour / _HOURS


def _round_up(value: int) -> int:
    """Return the next number with one digit and noughts."""
    step = int(10 ** (len(str(value)) - 1))
    return max(1, -(-value // step) * step)
