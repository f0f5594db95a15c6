"""What the terminal shows: each row as it is done, below it what is being measured now, at the end what was missed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.benchmarks.report import Line, Report, Result, figure, missed
from tests.benchmarks.rows import Target
from tests.benchmarks.runner import Measured

_VERDICTS = {True: "green", False: "bold red", None: "default"}


class Screen:
    """Shows a run. It draws between two measurements only, never during one."""

    def __init__(self, console: Console, rows: int, rounds: int) -> None:
        self._console = console
        self._rows = rows
        self._rounds = rounds
        self._number = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Screen:
        self._live.start()
        self._console.print(_table([("what, unit", "peers", "Holdfast: value, and ratios to the peers")]))
        return self

    def __exit__(self, *problem: object) -> None:
        self._live.stop()

    def progress(self, measured: Measured, number: int, target: Target) -> None:
        """Show what is about to be measured."""
        where = f"row {self._number + 1} of {self._rows}, round {number + 1} of {self._rounds}, {target.name}"
        self._live.update(Text(f"{where}: {measured.row.what}", style="dim"), refresh=True)

    def done(self, lines: Iterable[Line]) -> None:
        """Show a row that is done."""
        self._number += 1
        shown = ""
        for line in lines:
            self._console.print(_table([_cells(line, explain=line.what != shown)]))
            shown = line.what

    def end(self, report: Report) -> None:
        """Show what is left to say."""
        self._live.stop()
        self._console.print()
        for line, name in missed(report.lines):
            result = line.results[name]
            what = f"{name} {figure(result.median)} {line.unit.value}{_ratios(result)}"
            self._console.print(f"[bold red]missed[/] {line.row}: {what}; the goal is {result.goal}")
        self._console.print(f"{len(report.lines)} lines in {report.seconds / 60:.0f} minutes")


def _table(rows: Iterable[tuple[RenderableType, RenderableType, RenderableType]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for share in (4, 3, 5):
        table.add_column(ratio=share)
    table.expand = True
    for row in rows:
        table.add_row(*row)
    return table


def _cells(line: Line, *, explain: bool) -> tuple[Text, Text, Text]:
    what = Text.assemble((line.row, "bold"), f"  {line.unit.value}", (f"\n{line.what}" if explain else "", "dim"))
    peers = Text("\n").join(Text(_value(name, result)) for name, result in line.results.items() if not result.ours)
    ours = Text("\n").join(
        Text.assemble((_value(name, result), _VERDICTS[result.met]), _ratios(result))
        for name, result in line.results.items()
        if result.ours
    )
    return what, peers, ours


def _value(name: str, result: Result) -> str:
    return f"{name} {figure(result.median)}"


def _ratios(result: Result) -> str:
    ratios = "".join(f", {ratio:.2f} {peer}" for peer, ratio in result.ratios.items())
    return ratios + "".join(f", {difference:+,.0f} {peer}" for peer, difference in result.more.items())
