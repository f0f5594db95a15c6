"""The progress and the result of an action over many files."""

from __future__ import annotations

from collections.abc import Iterator

from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from holdfast.cli.output import console, counted, print_json, say, size
from holdfast.control.messages import Progress


def follow(doing: str, steps: Iterator[Progress], did: str, *, as_json: bool) -> int:
    """Show an action's progress and result; return the number of files with a problem."""
    problems: list[Progress] = []
    last = Progress(done=0, total=0, bytes_done=0)
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), DownloadColumn())
    with Bar(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task(doing)
        for last in steps:
            bar.update(task, completed=last.done, total=last.total)
            if last.problem:
                problems.append(last)
    if as_json:
        print_json({"done": last.done, "total": last.total, "bytes": last.bytes_done, "problems": problems})
        return len(problems)
    for step in problems:
        say(f"{step.path}: {step.problem}")
    say(f"{did} {last.done} of {counted(last.total, 'file')}, {size(last.bytes_done)}; {counted(len(problems), 'problem')}")
    return len(problems)
