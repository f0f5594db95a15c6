"""flush and drain: send what is on this node alone to its store."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute, number
from holdfast.cli.output import print_json, say
from holdfast.cli.progress import follow, waiting
from holdfast.cli.standby_rows import uncovered_here
from holdfast.control.client import ControlClient
from holdfast.errors import RemoteUnavailableError

_LOOKS_EVERY_SECONDS = 2.0


def flush(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="A file or directory in the mount.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that is unsent on this node.")] = False,
    timeout: Annotated[
        float, typer.Option(parser=number(), metavar="SECONDS", help="How long to wait for the stores.")
    ] = 60.0,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Send what is only on this node to its store.

    Returns when the store has it. Exits with 1 if something could not be sent.
    """
    if (path is None) != everything:
        raise typer.BadParameter("give a PATH or --all")
    with ControlClient(socket) as daemon:
        steps = daemon.flush(absolute(path) if path else None, timeout)
        problems = follow("sending", steps, "sent", as_json=as_json)
    if problems:
        raise typer.Exit(1)


def drain(
    timeout: Annotated[
        float, typer.Option(parser=number(), metavar="SECONDS", help="How long to wait for stores and writers.")
    ] = 600.0,
    standbys: Annotated[
        bool, typer.Option("--standbys", help="Begin when each partition that runs here has a complete standby copy.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take new files for the stores again.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Prepare a node to go: send all, take nothing new.

    Exits with 1 if something could not be sent in time.

    With --standbys, nothing is begun if the copies are not complete in time.

    Files that are open for writing may be written to the end. Working directories go on. Reading goes on.
    """
    with ControlClient(socket) as daemon:
        if undo:
            daemon.end_drain()
            sentence = "this node takes new files for its stores again"
            print_json({"done": sentence}) if as_json else say(sentence)
            return
        if standbys:
            with waiting("waiting for standby copies", as_json=as_json):
                _wait_for_standbys(daemon, timeout)
        problems = follow("draining", daemon.drain(timeout), "sent", as_json=as_json)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        say("everything is in its store: this node may go ('holdfast drain --undo' takes it back)")


def _wait_for_standbys(daemon: ControlClient, timeout: float) -> None:
    """Return when all that runs here is complete elsewhere. Raises ``RemoteUnavailableError`` if it takes too long."""
    deadline = time.monotonic() + timeout
    while True:
        found = daemon.holdings(all_nodes=True)
        left = uncovered_here(found)
        if not left and not found.problems:
            return
        if time.monotonic() >= deadline:
            why = found.problems[0] if found.problems else f"{left} partitions have no complete standby copy"
            raise RemoteUnavailableError(f"{why}; this node is not drained")
        time.sleep(_LOOKS_EVERY_SECONDS)
