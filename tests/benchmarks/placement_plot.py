"""The simulation of placement as a picture: what each event costs, and how even it leaves the nodes. Pure: SVG as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from tests.benchmarks.panels import legend, opening
from tests.benchmarks.plot import COLOURS

_LEFT, _WIDTH, _PANEL, _GAP, _TOP = 90, 860, 190, 60, 70
_TITLE = "2,000 partitions on 40 nodes: state fetched again, and balance"

Points = Sequence[tuple[str, float, float, float]]
"""An event, the part of the state that was fetched, the fewest and the most partitions of a node as a part of its share."""


def plot(found: Mapping[str, Points]) -> str:
    """Draw, for each way of placing, the state fetched after each event, and the span of the nodes' loads."""
    height = _TOP + 2 * _PANEL + _GAP + 70
    body = [
        *opening(_TITLE, _WIDTH, height),
        *legend(list(found), _LEFT, 180, 40),
        *_panel(_TOP, "fetched", [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")], 1.0),
        *_panel(_TOP + _PANEL + _GAP, "of its share", [(0.0, "0"), (0.75, "¾"), (1.0, "1"), (1.25, "1¼"), (2.0, "2")], 2.0),
    ]
    for number, points in enumerate(found.values()):
        body += _of_way(number, len(found), points)
    body += _events([event for event, *_ in next(iter(found.values()))], height)
    return "\n".join([*body, "</svg>", ""])


def _panel(top: float, title: str, ticks: Sequence[tuple[float, str]], most: float) -> Iterator[str]:
    yield f'  <text class="small" x="{_LEFT - 10}" y="{top - 8}" text-anchor="end">{title}</text>'
    for value, label in ticks:
        y = top + _PANEL * (1 - value / most)
        yield f'  <path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - 20}"/>'
        yield f'  <text class="small" x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _of_way(number: int, ways: int, points: Points) -> Iterator[str]:
    step = (_WIDTH - 20 - _LEFT) / len(points)
    bar = step * 0.7 / ways
    for index, (event, fetched, fewest, most) in enumerate(points):
        x = _LEFT + step * index + step * 0.15 + bar * number
        high = max(1.5, _PANEL * fetched)
        second = _TOP + _PANEL + _GAP
        upper = second + _PANEL * (1 - min(most, 2.0) / 2)
        span = max(2.0, _PANEL * (min(most, 2.0) - fewest) / 2)
        fill = f'fill="{COLOURS[number]}"'
        yield (
            f'  <path {fill} d="M{x:.1f} {_TOP + _PANEL - high:.1f}h{bar:.1f}v{high:.1f}h-{bar:.1f}z">'
            f"<title>{escape(event)}: {fetched:.1%} fetched</title></path>"
        )
        yield (
            f'  <path {fill} d="M{x:.1f} {upper:.1f}h{bar:.1f}v{span:.1f}h-{bar:.1f}z">'
            f"<title>{escape(event)}: {fewest:.2f} to {most:.2f}</title></path>"
        )


def _events(names: Sequence[str], height: float) -> Iterator[str]:
    step = (_WIDTH - 20 - _LEFT) / len(names)
    for index, name in enumerate(names):
        x = _LEFT + step * (index + 0.5)
        for line, words in enumerate(_halves(name)):
            y = height - 46 + 14 * line
            yield f'  <text class="small" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(words)}</text>'


def _halves(name: str) -> tuple[str, str]:
    words = name.split()
    half = (len(words) + 1) // 2
    return " ".join(words[:half]), " ".join(words[half:])
