"""What a batch and a restart of a Spark job take on each side, as bars. Pure: SVG as text, with nothing from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from xml.sax.saxutils import escape

from tests.benchmarks.plot import COLOURS
from tests.benchmarks.report import Line, Report, Unit, figure

_LINES = {
    "spark-batch": "a batch of the job",
    "spark-restart: node kept, page cache warm": "first batch after a restart, on the same node",
    "spark-restart: node lost": "first batch after a restart, on a node that has nothing",
}
_WIDTH, _LABELS_WIDTH, _MARGIN, _FIGURES_WIDTH = 760, 190, 20, 70
_TOP, _BAR_HEIGHT, _TITLE_HEIGHT, _BOTTOM = 44, 18, 34, 40
_STYLE = """
    text { fill: #1f2328; }
    .small { font-size: 12px; fill: #57606a; }
    .title { font-size: 16px; font-weight: 600; }
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .small { fill: #9ea7b3; } }
"""


def drawn(report: Report) -> str:
    """Return the picture of the rows about time that the report has. Each has its own scale, from 0."""
    lines = [line for line in report.lines if line.row in _LINES and line.unit is Unit.MILLISECONDS]
    body, y = [], float(_TOP)
    for line in lines:
        values = {name: result.median for name, result in line.results.items() if result.values}
        body.append(f'  <text x="{_MARGIN}" y="{y + 22:g}">{_LINES[line.row]}</text>')
        y += _TITLE_HEIGHT
        for name, value in values.items():
            body += _bar(name, value, max(values.values()), line, y)
            y += _BAR_HEIGHT
    height = y + _BOTTOM
    when = time.strftime("%Y-%m-%d", time.gmtime(report.began))
    rounds = sorted({len(result.values) for line in lines for result in line.results.values() if result.values})
    foot = f"{when}, medians of {' or '.join(map(str, rounds))} rounds by turns; shorter is better"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" role="img"'
            ' aria-labelledby="title" font-family="system-ui, sans-serif" font-size="13">',
            f'  <title id="title">A Spark job on {escape(", ".join(report.targets))}</title>',
            f"  <style>{_STYLE}  </style>",
            f'  <text class="title" x="{_MARGIN}" y="26">What a Spark job waits for</text>',
            *body,
            f'  <text class="small" x="{_MARGIN}" y="{height - 12:g}">{escape(foot)}</text>',
            "</svg>",
            "",
        ]
    )


def _bar(name: str, value: float, largest: float, line: Line, y: float) -> Iterator[str]:
    left = _MARGIN + _LABELS_WIDTH
    width = (_WIDTH - left - _FIGURES_WIDTH - _MARGIN) * value / largest
    colour = COLOURS[0] if line.results[name].ours else COLOURS[1] if name.startswith("s3a") else COLOURS[4]
    yield f'  <text class="small" x="{left - 8}" y="{y + 13:g}" text-anchor="end">{escape(_label(name))}</text>'
    yield f'  <rect x="{left}" y="{y + 2:g}" width="{width:.1f}" height="{_BAR_HEIGHT - 4}" fill="{colour}"/>'
    yield f'  <text class="small" x="{left + width + 6:.1f}" y="{y + 13:g}">{_duration(value)}</text>'


def _label(side: str) -> str:
    """Return what a reader calls a side: ``s3-30ms-1000mbit`` is Holdfast 30 ms from the store, 1,000 Mbit/s."""
    kind, _, line = side.partition("-")
    name = {"s3": "Holdfast", "s3a": "S3A", "file": "Holdfast, a directory"}.get(kind, kind)
    return ", ".join(filter(None, [name, *line.replace("ms", " ms").replace("mbit", " Mbit/s").split("-")]))


def _duration(milliseconds: float) -> str:
    return f"{figure(milliseconds / 1000)} s" if milliseconds >= 1000 else f"{figure(milliseconds)} ms"
