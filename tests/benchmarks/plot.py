"""A report as a picture: one line for each thing measured, one mark for each peer, at the ratio to it. Pure: SVG as text.

The axis is logarithmic; to the right of 1 Holdfast is ahead. What lies beyond the axis is drawn at its end. A tick in a line
is the goal. The picture stands by itself: no font, script or style from elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.benchmarks.report import Report, Result

_LEAST, _MOST = 0.01, 100.0
_LABELS_WIDTH, _AXIS_WIDTH, _MARGIN = 330, 520, 20
_TOP, _LINE_HEIGHT, _BOTTOM = 92, 20, 54
_WIDTH = _LABELS_WIDTH + _AXIS_WIDTH + 2 * _MARGIN

_STYLE = """
    text { fill: #1f2328; }
    .small { font-size: 12px; fill: #57606a; }
    .title { font-size: 16px; font-weight: 600; }
    .grid { stroke: #d0d7de; }
    .even { stroke: #57606a; stroke-width: 1.4; }
    .goal { stroke: #1f2328; stroke-width: 2; }
    .span { stroke: #afb8c1; stroke-width: 1.2; }
    .mark { stroke: #ffffff; stroke-width: .8; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9ea7b3; }
      .grid { stroke: #373e47; }
      .even { stroke: #9ea7b3; }
      .goal { stroke: #e6edf3; }
      .span { stroke: #6e7681; }
      .mark { stroke: #22272e; }
    }
"""
_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M-4.5 -4.5h9v9h-9z",
    "M0 -6l6 6l-6 6l-6 -6z",
    "M0 -5.5l6 10h-12z",
    "M-6 -4.5h12l-6 10z",
)
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#8c8c8c")
"""Of Okabe and Ito, which colour-blind people can tell apart; the shapes say the same."""


class _Entry(NamedTuple):
    """One line of the picture."""

    label: str
    result: Result


def drawn(report: Report) -> str:
    """Return the picture of all lines that have ratios."""
    entries = [
        _Entry(f"{line.row} ({name})", result)
        for line in report.lines
        for name, result in line.results.items()
        if result.ratios
    ]
    peers = list(dict.fromkeys(peer for entry in entries for peer in entry.result.ratios))
    height = _TOP + _LINE_HEIGHT * len(entries) + _BOTTOM
    body = [*_head(report, height), *_legend(peers), *_axis(height - _BOTTOM)]
    for number, entry in enumerate(entries):
        body += _line(entry, peers, _TOP + _LINE_HEIGHT * (number + 0.5))
    return "\n".join([*body, "</svg>", ""])


def position(ratio: float) -> float:
    """Return where a ratio is on the axis, in user units from the left edge of the picture."""
    inside = min(max(ratio, _LEAST), _MOST)
    return _LABELS_WIDTH + _MARGIN + _AXIS_WIDTH * math.log(inside / _LEAST) / math.log(_MOST / _LEAST)


def _head(report: Report, height: float) -> Iterator[str]:
    when = time.strftime("%Y-%m-%d", time.gmtime(report.began))
    machine = report.machine
    known = [machine.get(key, "") for key in ("processor", "kernel", "file system")]
    where = f"{machine.get('processors', '?')} × {', '.join(word for word in known if word)}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" role="img"'
        ' aria-labelledby="title description" font-family="system-ui, sans-serif" font-size="13">'
    )
    yield '  <title id="title">Holdfast as a ratio to its peers</title>'
    yield f'  <desc id="description">{escape(report.command)}: medians of {report.rounds} rounds.</desc>'
    yield f"  <style>{_STYLE}  </style>"
    yield f'  <text class="title" x="{_MARGIN}" y="26">Holdfast as a ratio to its peers; above 1 it is ahead</text>'
    yield (
        f'  <text class="small" x="{_MARGIN}" y="{height - 14:g}">'
        f"{escape(f'{when}, medians of {report.rounds} rounds, {where}')}</text>"
    )


def _legend(peers: Sequence[str]) -> Iterator[str]:
    x = float(_MARGIN + 6)
    for number, peer in enumerate(peers):
        yield _mark(number, x, 50)
        yield f'  <text class="small" x="{x + 12:g}" y="54">to {escape(peer)}</text>'
        x += 50 + 7 * len(peer)
    yield f'  <path class="goal" d="M{x:g} 43V57"/>'
    yield f'  <text class="small" x="{x + 8:g}" y="54">goal</text>'


def _axis(bottom: float) -> Iterator[str]:
    for ratio in (0.01, 0.1, 1.0, 10.0, 100.0):
        x = position(ratio)
        yield f'  <path class="{"even" if ratio == 1 else "grid"}" d="M{x:g} {_TOP}V{bottom:g}"/>'
        yield f'  <text class="small" x="{x:g}" y="{_TOP - 8}" text-anchor="middle">{ratio:g}</text>'


def _line(entry: _Entry, peers: Sequence[str], y: float) -> Iterator[str]:
    ratios, goal = entry.result.ratios, entry.result.goal
    yield f'  <text x="{_LABELS_WIDTH}" y="{y + 4:g}" text-anchor="end">{escape(entry.label)}</text>'
    places = [position(ratio) for ratio in ratios.values()]
    yield f'  <path class="span" d="M{min(places):.1f} {y:g}H{max(places):.1f}"/>'
    if goal is not None and goal.at_least is not None:
        yield f'  <path class="goal" d="M{position(goal.at_least):.1f} {y - 7:g}v14"/>'
    for peer, ratio in ratios.items():
        yield _mark(peers.index(peer), position(ratio), y, f"{ratio:.2f} of {peer}")


def _mark(number: int, x: float, y: float, title: str = "") -> str:
    shape, colour = _SHAPES[number % len(_SHAPES)], COLOURS[number % len(COLOURS)]
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'  <path class="mark" fill="{colour}" transform="translate({x:.1f} {y:g})" d="{shape}">{inside}</path>'
