"""checkpoint verify: which batches and checkpoints can be restored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute
from holdfast.cli.output import counted, print_json, print_table, say
from holdfast.cli.progress import bar
from holdfast.control.client import ControlClient
from holdfast.control.messages import RestoreInfo, VerifyProgress, VerifyRequest

SOME_CANNOT = 3
NEWEST_CANNOT = 4
_SHOWN_FAULTS = 5


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(verify)


def verify(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A checkpoint location, a checkpoint, or a directory of them.")
    ],
    batch: Annotated[int | None, typer.Option(metavar="N", help="Only this batch of a Spark query.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also read everything, and compare it with its digest.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Say which batches, checkpoints and savepoints can be restored, and why others can't.

    Exits with 3 if one can't, and with 4 if it is the newest, from which a restart begins.
    """
    request = VerifyRequest(path=absolute(path).rstrip("/"), batch=batch, deep=deep)
    with ControlClient(socket) as daemon:
        last = _follow(daemon, request, as_json=as_json)
    if as_json:
        print_json(last)
    else:
        _print(last, deep=deep)
    bad = [each for each in last.restores if not (each.restorable or each.expired)]
    if bad:
        raise typer.Exit(NEWEST_CANNOT if any(each.newest for each in bad) else SOME_CANNOT)


def _follow(daemon: ControlClient, request: VerifyRequest, *, as_json: bool) -> VerifyProgress:
    last = VerifyProgress(done=0, total=0, without_digest=0)
    with bar("reading", as_json=as_json) as update:
        for last in daemon.verify_checkpoints(request):
            update(last.done, last.total, 0)
    return last


def _print(last: VerifyProgress, *, deep: bool) -> None:
    print_table(("restorable", "files", "path", "because"), map(_row, last.restores), "nothing to restore")
    good = sum(each.restorable for each in last.restores)
    expired = sum(each.expired for each in last.restores)
    parts = [f"{good} of {len(last.restores) - expired} can be restored"]
    parts += [f"{expired} expired"] if expired else []
    parts += [f"{counted(last.done, 'object')} read"] if deep else []
    parts += [f"{last.without_digest} of them without a digest to compare with"] if last.without_digest else []
    say("; ".join(parts))


def _row(restore: RestoreInfo) -> tuple[str, int, str, str]:
    verdict = "yes" if restore.restorable else "expired" if restore.expired else "no"
    directory = Path(restore.path).parent.parent
    why = [f"{_below(directory, fault.path)}: {fault.why}" for fault in restore.faults[:_SHOWN_FAULTS]]
    why += [f"{restore.broken - len(why)} more"] if restore.broken > len(why) else []
    why += restore.remarks if restore.restorable else []
    return f"{verdict}, newest" if restore.newest else verdict, restore.files, restore.path, "; ".join(why)


def _below(directory: Path, path: str) -> str:
    return path.removeprefix(f"{directory}/")
