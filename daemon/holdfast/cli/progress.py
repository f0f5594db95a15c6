"""Progress of a command that waits: a bar with rate and time left, or a spinner. Shown on terminals only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from holdfast.cli.output import console, counted, print_json, say, size
from holdfast.control.messages import Progress

Update = Callable[[int, int, int], None]
"""A function that takes the number done, the number of all as far as it is known, and the number of bytes done."""


@contextmanager
def bar(doing: str, *, as_json: bool, total: int | None = None) -> Iterator[Update]:
    """Show how far something is, with its rate and the time left, while the block runs. Yields the function to call."""
    began = time.monotonic()
    moved = TextColumn("{task.fields[moved]}")
    with _shown(BarColumn(), MofNCompleteColumn(), moved, TimeRemainingColumn(), doing=doing, as_json=as_json) as shown:
        task = shown.add_task(doing, total=total, moved="")

        def update(done: int, total: int, bytes_done: int) -> None:
            rate = bytes_done / max(0.001, time.monotonic() - began)
            text = f"{size(bytes_done)}, {size(round(rate))}/s" if bytes_done else ""
            shown.update(task, completed=done, total=total, moved=text)

        yield update


@contextmanager
def waiting(doing: str, *, as_json: bool) -> Iterator[None]:
    """Show that something goes on, and for how long already, while the block runs."""
    with _shown(SpinnerColumn(), TimeElapsedColumn(), doing=doing, as_json=as_json) as shown:
        shown.add_task(doing, total=None)
        yield


def _shown(*columns: ProgressColumn, doing: str, as_json: bool) -> Bar:
    is_hidden = as_json or not console.is_terminal
    return Bar(TextColumn(doing, markup=False), *columns, console=console, transient=True, disable=is_hidden)


def follow(doing: str, steps: Iterator[Progress], did: str, *, as_json: bool) -> int:
    """Show an action's progress and result; return the number of files with a problem."""
    problems: list[Progress] = []
    last = Progress(done=0, total=0, bytes_done=0)
    with bar(doing, as_json=as_json) as update:
        for last in steps:
            update(last.done, last.total, last.bytes_done)
            if last.problem:
                problems.append(last)
    if as_json:
        print_json({"done": last.done, "total": last.total, "bytes": last.bytes_done, "problems": problems})
        return len(problems)
    for step in problems:
        say(f"{step.path}: {step.problem}")
    say(f"{did} {last.done} of {counted(last.total, 'file')}, {size(last.bytes_done)}; {counted(len(problems), 'problem')}")
    return len(problems)
