"""Cost against the number of objects as a picture: one line for each kind of work. Pure: SVG as text, with nothing from
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.plot import COLOURS

_WIDTH, _HEIGHT, _MARGIN = 720, 360, 80
_LEGEND = 210
"""The width of the column beside the lines that says which is which."""


def plot(found: Sequence[Mapping[str, Any]]) -> str:
    """Draw microseconds of processors an object against the number of objects, both logarithmic.

    Each of ``found`` has ``objects`` and, for those kinds of work that were measured, ``processor_seconds``.
    """
    each_object: dict[str, list[tuple[int, float]]] = {}
    for objects, costs in ((each["objects"], each["processor_seconds"]) for each in found):
        for job, seconds in costs.items():
            each_object.setdefault(job, []).append((objects, seconds / objects * 10**6))
    values = [value for line in each_object.values() for _, value in line]
    bottom, top = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right = math.log10(found[0]["objects"]), math.log10(max(found[-1]["objects"], found[0]["objects"] + 1))

    def place(objects: float, value: float) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - _MARGIN - _LEGEND) * (math.log10(objects) - left) / (right - left)
        return x, _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (math.log10(value) - bottom) / max(1, top - bottom)

    drawn = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>']
    for exponent in range(bottom, top + 1):
        _, y = place(found[0]["objects"], 10.0**exponent)
        drawn.append(f'<path stroke="#ddd" d="M{_MARGIN} {y:.0f}H{_WIDTH - _LEGEND}"/>')
        drawn.append(_text(_MARGIN - 6, y + 4, f"{10.0**exponent:,g} µs", "end"))
    for objects in (each["objects"] for each in found):
        x, y = place(objects, 10.0**bottom)
        drawn.append(_text(x, y + 20, f"{objects:,}"))
    for index, (job, line) in enumerate(each_object.items()):
        colour = COLOURS[index % len(COLOURS)]
        style = f'fill="none" stroke="{colour}" stroke-width="2"' + (
            ' stroke-dasharray="6 3"' if index >= len(COLOURS) else ""
        )
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        drawn.append(f'<polyline points="{path}" {style}/>')
        x, y = _WIDTH - _LEGEND + 30, _MARGIN + 18 * index
        drawn.append(f'<path d="M{x} {y}h24" {style}/>')
        drawn.append(_text(x + 30, y + 4, job, "start"))
    drawn.append(_text(_WIDTH / 2, _HEIGHT - 20, "objects in the store"))
    drawn.append(_text(_MARGIN, 20, "processor time for each object", "start"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    return "\n".join([f'{head} font-family="system-ui, sans-serif" font-size="12">', *drawn, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = "#1f2328") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
