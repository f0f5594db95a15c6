"""Numbers, sizes and times as people read them, and tables of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from holdfast.config.units import ByteSize
from holdfast.system.text import printable


def size(size_bytes: int) -> str:
    """Return a size with its unit."""
    return str(ByteSize(size_bytes))


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things: ``1 object``, ``2,000 objects``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def moment(time_ns: int) -> str:
    """Return a time, in UTC."""
    return datetime.datetime.fromtimestamp(time_ns / 10**9, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under column titles."""
    cells = [columns, *([f"{cell:,}" if isinstance(cell, int) else printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
