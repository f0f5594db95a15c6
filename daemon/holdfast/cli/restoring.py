"""checkpoint verify, clone, rewind: which batches can be restored, and going on from one of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.checkpoints import SHOWN, All, DryRun, Yes, go_on
from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute, number
from holdfast.cli.output import counted, print_json, print_table, say, size
from holdfast.cli.progress import bar, waiting
from holdfast.control.client import ControlClient
from holdfast.control.messages import (
    CloneProgress,
    CloneRequest,
    RestoreInfo,
    RewindRequest,
    UndoProgress,
    UndoRequest,
    VerifyProgress,
    VerifyRequest,
)

SOME_CANNOT = 3
NEWEST_CANNOT = 4
_SHOWN_FAULTS = 5


def verify(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A checkpoint location, a checkpoint, or a directory of them.")
    ],
    batch: Annotated[int | None, typer.Option(metavar="N", help="Only this batch of a Spark query.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also read everything, and compare it with its digest.")] = False,
    spark: Annotated[
        str, typer.Option(metavar="VERSION", help="The Spark that would restart the queries, as 3.5; default: the newest.")
    ] = "",
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Say what can be restored, and why the rest can't.

    It looks at batches, checkpoints and savepoints. Exits with 3 if one can't be restored, and with 4 if it is the newest,
    from which a restart begins.
    """
    request = VerifyRequest(path=_location(path), batch=batch, deep=deep, spark=_version(spark))
    with ControlClient(socket) as daemon:
        last = _follow(daemon, request, as_json=as_json)
    if as_json:
        print_json(last)
    else:
        _print(last, deep=deep)
    bad = [each for each in last.restores if not (each.restorable or each.expired)]
    if bad:
        raise typer.Exit(NEWEST_CANNOT if any(each.newest for each in bad) else SOME_CANNOT)


def _version(text: str) -> str:
    """Return major and minor of a version. Raises ``typer.BadParameter``."""
    found = re.match(r"(\d{1,3}\.\d{1,3})(\.|$)", text)
    if text and not found:
        raise typer.BadParameter(f"--spark {text!r}: give major and minor version, such as 3.5 or 4.3.0")
    return found[1] if found else ""


def clone(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The checkpoint location of a Spark query, or a savepoint of Flink.")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where the copy is to be: there must be nothing yet.")],
    batch: Annotated[int | None, typer.Option(metavar="N", help="As it was after batch N; default: the newest.")] = None,
    keep_id: Annotated[
        bool, typer.Option("--keep-id", help="The copy takes the place of the original, which will not run again.")
    ] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Copy a checkpoint, so that a job starts from the copy.

    That of a Spark query, or a savepoint of Flink, within its store.
    """
    request = CloneRequest(path=_location(source), to=_location(target), batch=batch, keep_id=keep_id)
    last = CloneProgress(done=0, total=0)
    with ControlClient(socket) as daemon, bar("copying", as_json=as_json) as update:
        for last in daemon.clone(request):
            update(last.done, last.total, last.bytes_done)
    if as_json:
        print_json(last)
        return
    copied = f"{request.to}: {counted(last.total, 'object')} copied, {size(last.bytes_done)}"
    whose = "with the id of the original" if keep_id else "with an id of its own"
    say(copied if last.batch is None else f"{copied}, as after batch {last.batch}, {whose}")


def rewind(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The checkpoint location of a Spark query that does not run.")],
    to: Annotated[int | None, typer.Option("--to", metavar="N", help="The batch that is to be the newest.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Put back what the latest rewind has set aside.")] = False,
    idle: Annotated[
        float, typer.Option(parser=number(), metavar="SECONDS", help="Refuse if anything was written within this time.")
    ] = 300.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    show_all: All = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Take a Spark query back to an earlier batch that is retained. What came after it is set aside until a sweep.

    Asks first on a terminal; elsewhere it only makes the plan, unless --yes is given. With --undo it takes the latest rewind
    back, at once, as long as the query has not run since.
    """
    if undo == (to is not None):
        raise typer.BadParameter("say either --to N or --undo")
    if to is None:
        _undo(UndoRequest(path=_location(path), idle_seconds=idle), socket, as_json=as_json)
        return
    limit = None if as_json or show_all else SHOWN
    request = RewindRequest(path=_location(path), to=to, idle_seconds=idle, items=limit)
    with ControlClient(socket) as daemon:
        with waiting("making a plan", as_json=as_json):
            plan = daemon.plan_rewind(request)
        go_on(daemon, plan, dry_run=dry_run, asks=not yes, as_json=as_json)


def _undo(request: UndoRequest, socket: Path, *, as_json: bool) -> None:
    last = UndoProgress(done=0, total=0, plan="")
    with ControlClient(socket) as daemon, bar("putting back", as_json=as_json) as update:
        for last in daemon.undo_rewind(request):
            update(last.done, last.total, last.bytes_done)
    if as_json:
        print_json(last)
    else:
        say(f"{request.path}: {counted(last.total, 'object')} put back, {size(last.bytes_done)}; {last.plan} is undone")


def _location(path: str) -> str:
    return absolute(path).rstrip("/")


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
