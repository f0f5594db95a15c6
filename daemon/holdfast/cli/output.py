"""Output: tables for people, JSON for programs, one line for an error.

All that a command prints goes through here, because it may have names in it that a hostile user chose: nothing that a
terminal would obey is printed, neither in text nor in JSON.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from holdfast.config.units import ByteSize
from holdfast.errors import OutputError
from holdfast.system import streams
from holdfast.system.text import printable

NOBODY_READS = 141
"""The exit status of a program whose output nobody reads any more: 128 and SIGPIPE, as shells tell it."""


class _Console(Console):
    """A console that ends the command when nobody reads its output any more. A terminal that has no name is a dumb one."""

    @property
    def is_dumb_terminal(self) -> bool:
        """True for a terminal that takes no escape sequences, as far as is known."""
        return super().is_dumb_terminal or not os.environ.get("TERM")

    def on_broken_pipe(self) -> None:
        """Exit with ``NOBODY_READS``."""
        _exit_unread()


def _exit_unread() -> NoReturn:
    streams.drop(sys.stdout.fileno())
    raise SystemExit(NOBODY_READS)


@contextmanager
def writing() -> Iterator[None]:
    """End the command quietly if nobody reads what the block prints. Raises ``OutputError`` if it can't be written."""
    try:
        yield
    except BrokenPipeError:
        _exit_unread()
    except OSError as problem:
        raise OutputError(problem) from None


console = _Console(highlight=False, soft_wrap=True, emoji=False)


def say(sentence: str, style: str | None = None) -> None:
    """Print ``sentence`` on one line."""
    with writing():
        console.print(printable(sentence), markup=False, style=style)


def say_marked(mark: str, style: str, sentence: str) -> None:
    """Print ``mark`` in ``style`` and ``sentence`` on one line."""
    with writing():
        console.print(Text(mark, style).append(printable(sentence), "default"))


def print_json(message: object) -> None:
    """Print a message, or a list of them, as JSON. Flushes, because readers of a stream wait for each message."""
    text = msgspec.json.format(msgspec.json.encode(message), indent=2).decode()
    write("\n".join(map(_escaped, text.split("\n"))) + "\n")


def print_json_line(message: object) -> None:
    """Print a message as JSON on one line, and flush, for readers of a stream."""
    write(_escaped(msgspec.json.encode(message).decode()) + "\n")


def write(text: str) -> None:
    """Print a text for programs as it is."""
    with writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """Print rows under column titles; ``empty`` if there are none. Each row is one line at any terminal width."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not cells:
        say(empty)
        return
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if any(columns):
        say(_line(columns, widths), "bold")
    for row in cells:
        say(_line(row, widths))


def print_found(
    found: object, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "", *, as_json: bool
) -> None:
    """Print a daemon's answer: ``found`` as JSON for programs, or its ``rows`` as a table for people."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, rows, empty)


def _escaped(json_line: str) -> str:
    """Return a line of JSON with what is not printable, which only strings have, as escapes of JSON."""
    if json_line.isprintable():
        return json_line
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in json_line)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def fail(message: str) -> None:
    """Print an error on one line of stderr."""
    _complain(f"holdfast: {printable(message)}")


def warn(message: str) -> None:
    """Print a warning on one line of stderr."""
    _complain(f"holdfast: warning: {printable(message)}")


def fail_as_json(error: dict[str, str | int]) -> None:
    """Print an error as one line of JSON on stderr."""
    _complain(_escaped(msgspec.json.encode({"error": error}).decode()))


def _complain(line: str) -> None:
    with suppress(OSError):  # nobody can be told; the exit status tells
        print(line, file=sys.stderr, flush=True)


def size(size_bytes: int) -> str:
    """Return a human-readable size."""
    return str(ByteSize(size_bytes))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(seconds: float | None) -> str:
    """Return a human-readable time; ``-`` for none."""
    if not seconds:
        return "-"
    return clock(seconds, "%Y-%m-%d %H:%M:%S")


def clock(seconds: float, form: str) -> str:
    """Return a time in a form of strftime(3); the number of seconds for a time that no calendar has, as files may bear."""
    try:
        return datetime.datetime.fromtimestamp(seconds).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"@{seconds:.0f}"


def duration(seconds: float) -> str:
    """Return a human-readable length of time."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def count_of(number: int) -> str:
    """Return a number with separators; ``-`` for none."""
    return f"{number:,}" if number else "-"


def latency(seconds: float) -> str:
    """Return a human-readable short time."""
    if seconds >= 100:
        return f"{seconds:.0f} s"
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds * 1e6:.0f} µs"
