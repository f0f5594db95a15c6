"""stats: one line a second about the node, for a log, a report or a look over somebody's shoulder."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import structs

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, number
from holdfast.cli.output import clock, latency, print_json_line, say, size
from holdfast.control.client import ControlClient
from holdfast.control.messages import Sample

_COLUMNS = ("time", "calls/s", "99 %", "hits/s", "misses/s", "fetched/s", "sent/s", "requests/s", "cached", "free")
_WIDTHS = (8, 8, 8, 7, 8, 10, 10, 10, 10, 10)
_COUNTERS = ("operations", "hits", "misses", "bytes_fetched", "bytes_uploaded", "requests")
_LINES_OF_A_PAGE = 20


def stats(
    interval: Annotated[
        float, typer.Option(parser=number(0.1, 3600), metavar="SECONDS", help="Seconds between two lines.")
    ] = 1.0,
    count: Annotated[int, typer.Option(min=0, help="End after so many lines; 0: at Ctrl-C.")] = 0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Print a line of rates each second.

    Operations, opens, bytes to and from the stores, cache and disk. With --json, each line is a JSON object.
    """
    with ControlClient(socket) as daemon:
        try:
            before, asked = _now(daemon), time.monotonic()
            for line in itertools.count() if count == 0 else range(count):
                time.sleep(interval)
                after, now = _now(daemon), time.monotonic()
                figures = _figures(before, after, now - asked)
                if as_json:
                    print_json_line(figures)
                else:
                    if line % _LINES_OF_A_PAGE == 0:
                        say(_row(_COLUMNS), "bold")
                    say(_row(_cells(after, figures)))
                before, asked = after, now
        except KeyboardInterrupt:
            return


def _now(daemon: ControlClient) -> Sample:
    return daemon.history(since=int(time.time()))[-1]


def _figures(before: Sample, after: Sample, seconds: float) -> dict[str, float | int | None]:
    """Return the rates between two samples, for each second, and the sizes at the later one.

    ``seconds`` were between them: their own times are those of a clock that may be set.
    """
    if after.operations < before.operations:  # another daemon, which counts from its own start
        before = structs.replace(before, **dict.fromkeys(_COUNTERS, 0), latencies=[])

    def rate(name: str) -> float:
        return float(getattr(after, name) - getattr(before, name)) / seconds

    return {
        "time": after.time,
        "operations_per_second": rate("operations"),
        "operation_seconds_99_percent": _within(before, after, 0.99),
        "hits_per_second": rate("hits"),
        "misses_per_second": rate("misses"),
        "fetched_bytes_per_second": rate("bytes_fetched"),
        "sent_bytes_per_second": rate("bytes_uploaded"),
        "store_requests_per_second": rate("requests"),
        "cached_bytes": after.cached_bytes,
        "free_bytes": after.free_bytes,
    }


def _within(before: Sample, after: Sample, share: float) -> float | None:
    """Return the time within which this share of the operations between two samples ended: their bucket's upper bound."""
    former, total = dict(before.latencies), after.operations - before.operations
    if not total or not after.latencies:
        return None
    within = (bound for bound, number in after.latencies if number - former.get(bound, 0) >= share * total)
    return next(within, after.latencies[-1][0])


def _cells(after: Sample, found: dict[str, float | int | None]) -> list[str]:
    within = found["operation_seconds_99_percent"]
    return [
        clock(after.time, "%H:%M:%S"),
        *(f"{found['operations_per_second']:,.0f}", "-" if within is None else latency(within)),
        *(f"{found[name]:,.0f}" for name in ("hits_per_second", "misses_per_second")),
        *(size(round(found[name] or 0)) for name in ("fetched_bytes_per_second", "sent_bytes_per_second")),
        f"{found['store_requests_per_second']:,.0f}",
        *(size(each) for each in (after.cached_bytes, after.free_bytes)),
    ]


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
