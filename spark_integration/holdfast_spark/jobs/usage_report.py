"""The report on usage: numbers, and one HTML file with plots drawn in it. No scripts, nothing from elsewhere. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from holdfast.checkpoints.formats import FORMATS
from holdfast_spark.jobs.formatting import moment, size
from holdfast_spark.jobs.plots import bars, lines

_LINES = 8
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
"""


class Amount(NamedTuple):
    """The number and size of the objects that an owner has for one purpose, in the inventory of ``began_ns``."""

    began_ns: int
    owner: str
    purpose: str
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Usage:
    """Amounts in inventories of one store, which were begun at ``times``, oldest first."""

    store: str
    times: Sequence[int]
    amounts: Sequence[Amount]

    @cached_property
    def owners(self) -> list[str]:
        """All owners, the largest of the newest inventory first."""
        names = {amount.owner for amount in self.amounts}
        return sorted(names, key=lambda owner: (-self.total(owner), owner))

    def total(self, owner: str | None = None, time_ns: int | None = None, purpose: str | None = None) -> int:
        """Return the bytes of an owner (or all), at a time (the newest), for a purpose (or all)."""
        at_ns = self.times[-1] if time_ns is None else time_ns
        return sum(
            amount.size_bytes
            for amount in self.amounts
            if amount.began_ns == at_ns and owner in (None, amount.owner) and purpose in (None, amount.purpose)
        )

    def objects(self, owner: str) -> int:
        """Return how many objects an owner has now."""
        return sum(each.objects for each in self.amounts if each.began_ns == self.times[-1] and each.owner == owner)

    def growth(self, owner: str | None = None) -> int:
        """Return by how many bytes an owner (or all) has grown since the oldest inventory."""
        return self.total(owner) - self.total(owner, self.times[0])


def report(usage: Usage) -> str:
    """Return the report as a page of HTML."""
    title = f"Usage of {html.escape(usage.store)}"
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{size(usage.total())} as of {moment(usage.times[-1])}.{_growth(usage)}</p>",
        "<h2>Who uses how much</h2>",
        bars(
            [
                (owner, [(purpose, usage.total(owner, purpose=purpose)) for purpose in FORMATS.purposes])
                for owner in usage.owners
            ]
        ),
    ]
    if len(usage.times) > 1:
        series = [("all", [usage.total(None, time) for time in usage.times])]
        series += [(owner, [usage.total(owner, time) for time in usage.times]) for owner in usage.owners[:_LINES]]
        parts += ["<h2>Growth</h2>", lines(usage.times, series)]
    parts += ["<h2>Numbers</h2>", _table(usage)]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _growth(usage: Usage) -> str:
    if len(usage.times) == 1:
        return ""
    days = (usage.times[-1] - usage.times[0]) / 10**9 / 86400
    grown = usage.growth()
    word = "less" if grown < 0 else "more"
    a_day = f", {size(int(abs(grown) / days))} a day" if days >= 1 else ""
    return f" {size(abs(grown))} {word} than on {moment(usage.times[0])}{a_day}."


def _table(usage: Usage) -> str:
    purposes = [purpose for purpose in FORMATS.purposes if usage.total(purpose=purpose)]
    grows = len(usage.times) > 1
    titles = ["owner", "objects", "size", *(["growth"] if grows else []), *purposes]
    rows = []
    for owner in usage.owners:
        grown = usage.growth(owner)
        cells = [html.escape(owner), f"{usage.objects(owner):,}", size(usage.total(owner))]
        cells += [f"{'−' if grown < 0 else '+'}{size(abs(grown))}"] if grows else []
        cells += [size(usage.total(owner, purpose=purpose)) for purpose in purposes]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><tr>{head}</tr>\n" + "\n".join(rows) + "</table>"
