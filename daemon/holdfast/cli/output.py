"""What the command prints: tables for people, JSON for programs, one line for an error."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from holdfast.config.units import ByteSize

console = Console(highlight=False, soft_wrap=True)


def print_json(message: object) -> None:
    """Print a message, or a list of them, as JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(message), indent=2).decode() + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """Print rows under column titles; ``empty`` when there are none."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    if table.row_count:
        console.print(table)
    else:
        console.print(empty)


def fail(message: str) -> None:
    """Print an error on one line of stderr."""
    print(f"holdfast: {message}", file=sys.stderr)


def size(size_bytes: int) -> str:
    """Return a size for people."""
    return str(ByteSize(size_bytes))


def moment(seconds: float | None) -> str:
    """Return a time for people; ``-`` for none."""
    if not seconds:
        return "-"
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """Return a length of time for people."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
