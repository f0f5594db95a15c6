"""The opening and the legend of pictures of simulations: panels one above the other. Pure: SVG as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from tests.benchmarks.plot import COLOURS

_STYLE = """
    text { fill: #1f2328; }
    .small { font-size: 11px; fill: #57606a; }
    .title { font-size: 15px; font-weight: 600; }
    .grid { stroke: #d0d7de; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9ea7b3; }
      .grid { stroke: #373e47; }
    }
"""


def opening(title: str, width: int, height: int) -> Iterator[str]:
    """Yield the opening of a picture of this size in pixels, with its title."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">'
    )
    yield f"  <title>{title}</title>"
    yield f"  <style>{_STYLE}  </style>"
    yield f'  <text class="title" x="20" y="26">{title} (simulated)</text>'


def legend(names: Sequence[str], left: int, step: int, top: int) -> Iterator[str]:
    """Yield a square in its colour for each name, every ``step`` pixels from ``left`` on."""
    for number, name in enumerate(names):
        x = left + step * number
        yield f'  <path fill="{COLOURS[number]}" d="M{x} {top}h12v12h-12z"/>'
        yield f'  <text class="small" x="{x + 18}" y="{top + 10}">{escape(name)}</text>'
