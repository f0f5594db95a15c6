"""top, profile and trace: what the processes of this node ask of the mount, as a table and as it happens."""

from __future__ import annotations

import enum
import sys
import time
from contextlib import nullcontext
from typing import Annotated

import typer

from holdfast.cli.activity import Activity, Groups, Processes, Tally
from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute, number
from holdfast.cli.output import clock, console, count_of, latency, print_json, print_json_line, print_table, say, size
from holdfast.cli.stats import stats
from holdfast.control.client import ControlClient
from holdfast.control.messages import OperationInfo
from holdfast.errors import ConfigurationError

_COLUMNS = ("calls", "time", "average", "99 %", "longest", "failed", "hits", "misses", "fetched", "stores")


class By(enum.StrEnum):
    """The groupings by which ``profile`` adds operations up."""

    OPERATION = "operation"
    PROCESS = "process"
    PLACE = "place"
    ZONE = "zone"
    PATH = "path"


def top(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Show operations and transfers live.

    Which operations run, how long they take, who causes them, and what is transferred. The key h tells the others.
    With --json, it prints what 'holdfast stats --json' prints.
    """
    if as_json:
        stats(interval=1.0, count=0, socket=socket, as_json=True)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError(
            "top needs a terminal; 'holdfast stats' prints a line each second, 'holdfast profile' a table"
        )
    from holdfast.cli.top import Top  # textual takes a third of a second to import

    with ControlClient(socket) as daemon:
        daemon.status()  # says what is wrong if nobody answers
    Top(lambda: ControlClient(socket), Processes()).run()


def profile(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="Only what is about this file or directory.")] = None,
    seconds: Annotated[float, typer.Option(parser=number(0.1, 86_400), metavar="SECONDS", help="How long to watch.")] = 10.0,
    by: Annotated[By, typer.Option(help="What to add up by; place is the query or working directory.")] = By.OPERATION,
    most: Annotated[int, typer.Option("--top", min=1, help="How many rows to show, those with the most time first.")] = 20,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Watch for some seconds, and show what took the time.

    Which operations, how often, and what they waited for.
    """
    with ControlClient(socket) as daemon:
        groups = _groups(daemon)
        activity = Activity(groups.by[by])
        lost = _watch(daemon, activity, absolute(path) if path else None, seconds, shows=not as_json)
    rows = sorted(activity.tallies.items(), key=lambda row: -row[1].seconds)[:most]
    if as_json:
        print_json({"seconds": seconds, "lost": lost, "rows": [_as_message(by, key, tally) for key, tally in rows]})
        return
    print_table((by, *_COLUMNS), [(key, *_cells(tally)) for key, tally in rows], "nothing was asked of the mount")
    if lost:
        say(f"{lost} more operations came too fast to be seen: these are a part of all")


def trace(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or directory in the mount.")],
    slower_than: Annotated[
        float, typer.Option(parser=number(), metavar="MILLISECONDS", help="Only what takes longer.")
    ] = 0.0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Print each operation on a file or in a directory.

    A line as each ends, until Ctrl-C.

    What the kernel does by itself is not seen: reading and writing in passthrough, and names that it knows already.
    """
    processes = Processes()
    with ControlClient(socket) as daemon:
        groups = _groups(daemon)
        try:
            for seen in daemon.watch_operations(absolute(path), int(slower_than * 1000)):
                for operation in seen.operations:
                    print_json_line(operation) if as_json else say(_line(operation, groups, processes))
                if seen.lost and not as_json:
                    say(f"({seen.lost} operations came too fast to be seen)")
        except KeyboardInterrupt:
            return


def _groups(daemon: ControlClient) -> Groups:
    status = daemon.status()
    return Groups(status.mountpoint, status.remotes, Processes())


def _watch(daemon: ControlClient, activity: Activity, path: str | None, seconds: float, *, shows: bool) -> int:
    """Feed ``activity`` for so long, or until Ctrl-C; return how many operations were lost."""
    until, lost = time.monotonic() + seconds, 0
    with console.status(f"watching for {seconds:g} s") if shows and console.is_terminal else nullcontext():
        try:
            for seen in daemon.watch_operations(path):
                for operation in seen.operations:
                    activity.add(operation)
                lost += seen.lost
                if time.monotonic() >= until:
                    break
        except KeyboardInterrupt:
            pass
    return lost


def _cells(tally: Tally) -> tuple[str, ...]:
    return (
        count_of(tally.count),
        latency(tally.seconds),
        latency(tally.seconds / tally.count),
        latency(tally.within(0.99)),
        latency(tally.longest),
        count_of(tally.errors),
        count_of(tally.hits),
        count_of(tally.misses),
        size(tally.fetched_bytes) if tally.fetched_bytes else "-",
        latency(tally.store_seconds) if tally.store_seconds else "-",
    )


def _as_message(by: str, key: str, tally: Tally) -> dict[str, object]:
    return {
        by: key,
        "calls": tally.count,
        "seconds": tally.seconds,
        "seconds_99_percent": tally.within(0.99),
        "longest_seconds": tally.longest,
        "failed": tally.errors,
        "hits": tally.hits,
        "misses": tally.misses,
        "fetched_bytes": tally.fetched_bytes,
        "data_bytes": tally.data_bytes,
        "store_seconds": tally.store_seconds,
    }


def _line(operation: OperationInfo, groups: Groups, processes: Processes) -> str:
    at = clock(operation.time, "%H:%M:%S.%f")[:-3]
    target = f" -> {groups.short(operation.target)}" if operation.target else ""
    words = [operation.error, operation.cache]
    if operation.fetched_bytes:
        words.append(f"fetched {size(operation.fetched_bytes)}")
    if operation.data_bytes:
        words.append(size(operation.data_bytes))
    if operation.store_requests:
        words.append(f"{latency(operation.store_seconds)} in {operation.store_requests} requests to stores")
    said = ", ".join(filter(None, words))
    return (
        f"{at}  {operation.operation:<9} {latency(operation.seconds):>8}  {processes.name(operation.pid):<20}  "
        f"{groups.short(operation.path)}{target}{f'  ({said})' if said else ''}"
    )
