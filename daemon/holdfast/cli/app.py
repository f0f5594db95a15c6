"""The tree of commands, and the one place where an error becomes a line on stderr and an exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import typer
from typer._click.exceptions import ClickException
from typer._click.utils import PacifyFlushWrapper
from typer.completion import completion_init  # type: ignore[attr-defined]  # it has no better place

from holdfast import __version__
from holdfast.cli import (
    checkpoints,
    configuration,
    doctor,
    entries,
    holdings,
    mounting,
    observing,
    page,
    restoring,
    sending,
    stats,
    unmounting,
    waiting,
    watching,
    workdirs,
)
from holdfast.cli.exit_status import HINTS, ExitStatus, code_of, exit_status
from holdfast.cli.output import NOBODY_READS, fail, fail_as_json, writing
from holdfast.errors import HoldfastError, OutputError
from holdfast.system import streams
from holdfast.system.text import PrintableStream

_COMPLETING = "_HOLDFAST_COMPLETE"
"""The variable by which the shell's completion script (in the Debian package) asks what may come next."""


app = typer.Typer(
    name="holdfast",
    help="Keeps state close to the process that uses it: working directories that survive restarts, cached checkpoints.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
_COMMANDS: tuple[Callable[..., None], ...] = (
    *(
        mounting.mount,
        unmounting.umount,
        mounting.restart,
        mounting.keeper,
        waiting.wait,
        observing.status,
        observing.events,
    ),
    *(watching.top, watching.profile, watching.trace, stats.stats),
    *(entries.ls, entries.stat, entries.why, entries.verify, entries.prefetch, entries.evict),
    *(entries.pin, entries.unpin, entries.pins),
    *(holdings.holdings, sending.flush, sending.drain, doctor.doctor, page.ui, observing.batches),
)
for command in _COMMANDS:
    app.command()(command)
app.add_typer(workdirs.app, name="workdir")
for command in (restoring.verify, restoring.clone, restoring.rewind):
    checkpoints.app.command()(command)
app.add_typer(checkpoints.app, name="checkpoint")
app.add_typer(configuration.app, name="config")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> None:
    """Run the command. An error prints one line on stderr, as JSON with ``--json``, and exits with its kind's status."""
    streams.prepare()
    sys.stderr = PrintableStream(sys.stderr)
    if _COMPLETING in os.environ:
        completion_init()
    as_json = "--json" in sys.argv[1:]
    try:
        _run(as_json=as_json)
    finally:
        streams.finish()


def _run(*, as_json: bool) -> NoReturn:
    try:
        try:
            status = app(prog_name="holdfast", standalone_mode=not as_json)
        except SystemExit as end:
            status = NOBODY_READS if isinstance(sys.stdout, PacifyFlushWrapper) else end.code  # typer's, for its help
        with writing():
            sys.stdout.flush()
        sys.exit(status)
    except (HoldfastError, OSError) as problem:
        if isinstance(problem, BrokenPipeError):
            sys.exit(NOBODY_READS)
        sys.exit(_told(code_of(problem), _text(problem), exit_status(problem), as_json=as_json))
    except typer.Abort:
        sys.exit(_told("aborted", "ended by the user", ExitStatus.FAILED, as_json=as_json))
    except ClickException as problem:  # only with --json: typer shows it otherwise
        sys.exit(_told("usage", problem.format_message(), ExitStatus.USAGE, as_json=as_json))


def _told(code: str, message: str, status: ExitStatus, *, as_json: bool) -> ExitStatus:
    if as_json:
        fail_as_json({"code": code, "message": message, "hint": HINTS[status], "status": int(status)})
    else:
        fail(message)
    return status


def _text(problem: HoldfastError | OSError) -> str:
    if isinstance(problem, HoldfastError):
        return str(problem)
    if problem.errno == errno.EBADF:  # from typer: of our own descriptors none is closed
        return str(OutputError(problem))
    return f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem)
