"""checkpoint ls, drop, sweep, plans, show, execute: list checkpoints, plan what to remove, and remove it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute, asking_client, number
from holdfast.cli.output import moment, print_found, print_json, print_table, say, size
from holdfast.cli.progress import bar, waiting
from holdfast.control.client import ControlClient
from holdfast.control.messages import DropRequest, PlanInfo, SweepProgress, SweepRequest
from holdfast.errors import ConfigurationError

app = typer.Typer(help="Checkpoints of Spark, Flink and Holdfast.", no_args_is_help=True)

SHOWN = 20
_PLAN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
REWIND = "rewind"
_NONE = SweepProgress(done=0, total=0, removed=0, removed_bytes=0, gone=0, in_use=0)

Root = Annotated[str, typer.Argument(metavar="ROOT", help="A directory in the mount.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only make the plan and show it.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Carry the plan out without asking; needed where there is no terminal to ask on.")
]
All = Annotated[bool, typer.Option("--all", help="Show everything that would be removed, not only the first entries.")]
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's id, as 'plans' lists them.")]


@app.command("ls")
def list_all(root: Root, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List checkpoints below a directory, and what they share."""
    with asking_client(socket) as daemon, waiting("listing the store", as_json=as_json):
        found = daemon.checkpoints(absolute(root))
    rows = (
        (
            each.what if each.complete else f"{each.what}, incomplete",
            each.files,
            size(each.size_bytes),
            moment(each.modified),
            each.path,
        )
        for each in found
    )
    print_found(found, ("what", "files", "size", "modified", "path"), rows, "no checkpoints", as_json=as_json)


@app.command()
def drop(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="As 'ls' lists it: …/chk-7, …/commits/12.")],
    up_to: Annotated[bool, typer.Option("--up-to", help="Also drop all checkpoints before it.")] = False,
    root: Annotated[
        str | None, typer.Option(help="The directory of all jobs that may refer to it; default: the job's parent.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    show_all: All = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Drop a checkpoint.

    Its metadata goes first, then the files that only it refers to. Shared files are left for a sweep.
    Asks first on a terminal; elsewhere it only makes the plan, unless --yes is given.
    """
    limit = None if as_json or show_all else SHOWN
    with ControlClient(socket) as daemon:
        request = DropRequest(
            path=absolute(checkpoint).rstrip("/"), up_to=up_to, root=absolute(root) if root else None, items=limit
        )
        with waiting("making a plan", as_json=as_json):
            plan = daemon.plan_drop(request)
        go_on(daemon, plan, dry_run=dry_run, asks=not yes, as_json=as_json)


@app.command()
def sweep(
    root: Root,
    dry_run: DryRun = False,
    grace: Annotated[
        float | None,
        typer.Option(
            parser=number(), metavar="SECONDS", help="Remove nothing younger than this; default: sweep.grace_seconds."
        ),
    ] = None,
    abandoned: Annotated[
        float | None,
        typer.Option(
            parser=number(),
            metavar="SECONDS",
            help="How long a checkpoint may be in progress; default: sweep.abandoned_seconds.",
        ),
    ] = None,
    min_batches: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="Spark's minBatchesToRetain; default: sweep.min_batches_to_retain."),
    ] = None,
    yes: Yes = False,
    show_all: All = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Remove what no retained checkpoint needs.

    The leftovers of writers go too.
    Asks first on a terminal; elsewhere it only makes the plan, unless --yes is given.
    """
    request = SweepRequest(
        path=absolute(root),
        grace_seconds=grace,
        abandoned_seconds=abandoned,
        min_batches_to_retain=min_batches,
        items=None if as_json or show_all else SHOWN,
    )
    with ControlClient(socket) as daemon:
        with waiting("making a plan", as_json=as_json):
            plan = daemon.plan_sweep(request)
        go_on(daemon, plan, dry_run=dry_run, asks=not yes, as_json=as_json)


@app.command()
def plans(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List the stored plans and their states."""
    with asking_client(socket) as daemon:
        found = daemon.plans()
    rows = ((plan.id, plan.kind, plan.state, plan.count, size(plan.size_bytes), plan.path) for plan in found)
    print_found(found, ("plan", "kind", "state", "entries", "size", "root"), rows, "no plans", as_json=as_json)


@app.command()
def show(plan: Plan, show_all: All = False, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Show a plan: what it would remove, why, and how large it is."""
    with asking_client(socket) as daemon:
        found = daemon.plan(plan, None if as_json or show_all else SHOWN)
    if as_json:
        print_json(found)
    else:
        _print(found)


@app.command()
def execute(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan's id, or a file that contains a plan made elsewhere.")],
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Execute a plan, or the rest of an interrupted one. Refused if the store has changed since the plan was made."""
    with ControlClient(socket) as daemon:
        is_file = not _PLAN_ID.fullmatch(plan) and Path(plan).is_file()  # this directory may be in a mount that hangs
        found = daemon.submit(_content(Path(plan))) if is_file else daemon.plan(plan, 0)
        _execute(daemon, found, at_once=False, as_json=as_json)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror}") from None


def go_on(daemon: ControlClient, plan: PlanInfo, *, dry_run: bool, asks: bool, as_json: bool) -> None:
    """Show a newly made plan, and execute it once that is confirmed. Without a terminal to ask on it is only made."""
    at_terminal = sys.stdin.isatty() and not as_json
    only_plans = dry_run or (asks and not at_terminal)
    if as_json and only_plans:
        print_json(plan)
        return
    if not as_json:
        _print(plan)
    if only_plans:
        if plan.count:
            say(f"nothing was changed; 'holdfast checkpoint execute {plan.id}' carries out this plan, or say --yes")
        return
    if not (plan.count or as_json):
        return
    if plan.count and asks:
        typer.confirm(f"{_verb(plan).capitalize()} {_entries(plan.count)}, {size(plan.size_bytes)}?", abort=True)
    _execute(daemon, plan, at_once=not asks, as_json=as_json)


def _execute(daemon: ControlClient, plan: PlanInfo, *, at_once: bool, as_json: bool) -> None:
    last = _NONE
    with bar("removing", as_json=as_json, total=plan.count) as update:
        for last in daemon.execute(plan.id, at_once=at_once):
            update(last.done, plan.count, last.removed_bytes)
    if as_json:
        print_json(daemon.plan(plan.id))
        return
    others = [
        f"{_entries(number)} {what}"
        for number, what in ((last.gone, "gone before"), (last.in_use, "in use here, and left"))
        if number
    ]
    done = "set aside" if plan.kind == REWIND else "removed"
    say("; ".join([f"{done} {_entries(last.removed)}, {size(last.removed_bytes)}", *others]))


def _print(plan: PlanInfo) -> None:
    prefix = f"{plan.path}/"
    rows = [(item.path.removeprefix(prefix), item.why, size(item.size_bytes)) for item in plan.items]
    print_table(("what", "why", "size"), rows, f"nothing to {_verb(plan)} below {plan.path}")
    if plan.count > len(plan.items):
        say(f"… and {plan.count - len(plan.items)} more")
    if plan.count:
        reasons = ", ".join(f"{number} {reason.replace('_', ' ')}" for reason, number in sorted(plan.by_reason.items()))
        say(f"plan {plan.id} ({plan.state}): {_entries(plan.count)}, {size(plan.size_bytes)}: {reasons}")
    for kept in plan.kept:
        say(f"kept: {Path(kept.path)}: {kept.why}")


def _verb(plan: PlanInfo) -> str:
    return "set aside" if plan.kind == REWIND else "remove"


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"
