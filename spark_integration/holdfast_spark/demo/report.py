"""The demo's output, while it runs and at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from holdfast.config.units import ByteSize

if TYPE_CHECKING:
    from holdfast_spark.demo.driver import Batch
    from holdfast_spark.demo.scenario import Act


class Report:
    """Prints lines with the time since the start."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()

    def say(self, sentence: str) -> None:
        """Print a line."""
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {sentence}")

    def act(self, number: int, total: int, title: str) -> None:
        """Print the heading of an act."""
        self._console.print(f"\n[bold]Act {number} of {total}: {title}[/]")

    def batch(self, batch: Batch, total: int) -> None:
        """Print that a batch is done."""
        self.say(f"batch {batch.number + 1:>2} of {total}: {batch.rows:,} flights in {batch.milliseconds} ms")

    def table(self, acts: Sequence[Act]) -> None:
        """Print what was counted in each act."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("act", "batches", "hits", "misses", "fetched", "corrupt", "first batch"):
            table.add_column(title, justify="left" if title == "act" else "right", no_wrap=True)
        for act in acts:
            table.add_row(
                act.title,
                act.batches,
                str(act.hits),
                str(act.misses),
                str(ByteSize(act.bytes_fetched)),
                str(act.corrupt_dropped),
                f"{act.first_batch_seconds:.1f} s",
            )
        self._console.print()
        self._console.print(table)
        self._console.print(
            "[dim]hits: opens served from the node's disk; misses: opens that fetched from the remote store;\n"
            "corrupt: files dropped because of a wrong digest; first batch: counted from the start of the job[/]\n"
        )

    def verdict(self, result: dict[str, Any]) -> None:
        """Print whether the answers are equal."""
        what = f"{result['flights']:,} flights, {result['subjects']:,} aircraft and routes"
        if result["missing"] or result["wrong"]:
            self._console.print(
                f"[bold red]WRONG[/]: of {what}, {result['missing']} rows are missing and {result['wrong']} differ"
            )
        else:
            self._console.print(f"[bold green]Equal[/] to the batch computation over the same files: {what}")
