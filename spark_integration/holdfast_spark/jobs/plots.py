"""Plots as SVG, to stand in a page: bars of parts, and lines over time. Numbers in, text out."""

from __future__ import annotations

import html
from collections.abc import Sequence

from holdfast_spark.jobs.formatting import moment, size

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994f00", "#332288")
"""The colours of the parts and lines, which colour-blind people can tell apart too (Paul Tol's "bright", and two more)."""
_WIDTH = 860
_LEFT, _RIGHT = 260, 110
_ROW, _BAR = 24, 16
_PLOT_HEIGHT = 260
_NAME_LENGTH = 36


def bars(rows: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """Draw one bar for each name, of parts in bytes; all bars have the same kinds of parts."""
    largest = max((sum(value for _, value in parts) for _, parts in rows), default=0) or 1
    kinds = list(dict.fromkeys(kind for _, parts in rows for kind, value in parts if value))
    colours = dict(zip(kinds, _COLOURS * len(kinds), strict=False))
    drawn = [_legend([(kind, colours[kind]) for kind in kinds])]
    for index, (name, parts) in enumerate(rows):
        top, left = _ROW * (index + 1) + 4, float(_LEFT)
        drawn.append(_text(_LEFT - 8, top + 12, _short(name), "end", name))
        for kind, value in parts:
            width = (_WIDTH - _LEFT - _RIGHT) * value / largest
            if value:
                drawn.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{max(width, 0.5):.1f}" height="{_BAR}" fill="{colours[kind]}">'
                    f"<title>{html.escape(f'{name}: {kind}: {size(value)}')}</title></rect>"
                )
            left += width
        drawn.append(_text(left + 6, top + 12, size(sum(value for _, value in parts))))
    return _svg(drawn, _ROW * (len(rows) + 1) + 12)


def lines(times_ns: Sequence[int], series: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Draw one line for each name: bytes at each of the times."""
    top_value = _round_up(max((value for _, values in series for value in values), default=0))
    first, last = times_ns[0], max(times_ns[-1], times_ns[0] + 1)
    left, width, top = 90, _WIDTH - 90 - 20, _ROW * (1 + (len(series) - 1) // 3) + 10

    def place(time_ns: int, value: int) -> tuple[float, float]:
        return left + width * (time_ns - first) / (last - first), top + _PLOT_HEIGHT * (1 - value / top_value)

    drawn = [_legend([(name, _colour(index)) for index, (name, _) in enumerate(series)])]
    for step in range(5):
        value = top_value * step // 4
        _, y = place(first, value)
        drawn.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#8884"/>')
        drawn.append(_text(left - 8, y + 4, size(value), "end"))
    for time_ns, anchor in ((first, "start"), (times_ns[-1], "end")):
        drawn.append(_text(place(time_ns, 0)[0], top + _PLOT_HEIGHT + 18, moment(time_ns), anchor))
    for index, (name, values) in enumerate(series):
        points = [place(time_ns, value) for time_ns, value in zip(times_ns, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{_colour(index)}" stroke-width="2"/>')
        drawn += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_colour(index)}">'
            f"<title>{html.escape(f'{name}: {size(value)}')}</title></circle>"
            for (x, y), value in zip(points, values, strict=True)
        ]
    return _svg(drawn, top + _PLOT_HEIGHT + 30)


def _legend(names: Sequence[tuple[str, str]]) -> str:
    """Draw names beside their colours, three in a row where there are many."""
    parts = []
    column = (_WIDTH - 20) // (3 if len(names) <= 3 or any(len(name) > 20 for name, _ in names) else len(names))
    in_row = max(1, (_WIDTH - 20) // column)
    for index, (name, colour) in enumerate(names):
        x, y = 10 + column * (index % in_row), 4 + _ROW * (index // in_row)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, y + 11, _short(name), "start", name))
    return "".join(parts)


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _short(name: str) -> str:
    """Keep the end of a long name: that is where names differ."""
    return name if len(name) <= _NAME_LENGTH else f"…{name[1 - _NAME_LENGTH :]}"


def _text(x: float, y: float, text: str, anchor: str = "start", title: str = "") -> str:
    whole = f"<title>{html.escape(title)}</title>" if title and title != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}{whole}</text>'


def _round_up(value: int) -> int:
    """Return four times a round number of bytes, not below ``value``, and not far above it."""
    unit = 1 << max(0, value.bit_length() - 5)
    return 4 * unit * max(1, -(-value // (4 * unit)))


def _svg(drawn: Sequence[str], height: int) -> str:
    body = "\n".join(drawn)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
