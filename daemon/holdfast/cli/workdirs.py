"""The commands workdir acquire, workdir release and workdir ls."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, asking_client
from holdfast.cli.output import moment, print_found, print_json, say, size, write
from holdfast.control.client import ControlClient
from holdfast.control.messages import WorkdirInfo

app = typer.Typer(help="Working directories of processes.", no_args_is_help=True)

Role = Annotated[str, typer.Option(help="The kind of process, for example worker.")]
Id = Annotated[str, typer.Option("--id", help="Which process: the same after each restart, for example HOST-PORT.")]


@app.command()
def acquire(
    role: Role,
    resource_id: Id,
    pid: Annotated[
        int | None, typer.Option(help="The process that holds it; default: the parent process of this command.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="As root: take it over even if it is, or was made, by another user.")
    ] = False,
    shell: Annotated[bool, typer.Option("--shell", help="Print variable assignments for a shell to eval.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Acquire the working directory of a process.

    Creates it or finds it again, and prints its path.

    It is held until the process ends. If a process keeps the lease file open, it is held until the last such process ends.
    """
    with ControlClient(socket) as daemon:
        found = daemon.acquire(role, resource_id, os.getppid() if pid is None else pid, *_owner(), adopt=adopt)
    if as_json:
        print_json(found)
    elif shell:
        write(f"HOLDFAST_WORKDIR={shlex.quote(found.path)} HOLDFAST_LEASE_FILE={shlex.quote(found.lease_file)}\n")
    else:
        write(f"{found.path}\n")


def _owner() -> tuple[int, int]:
    """Return uid and gid of the owner: of whoever calls, but root acquires for the user of the process."""
    return (-1, -1) if os.getuid() == 0 else (os.getuid(), os.getgid())


@app.command()
def release(role: Role, resource_id: Id, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Release a working directory, which is kept for a while.

    How long: retain_seconds of its role.
    """
    with ControlClient(socket) as daemon:
        found = daemon.release(role, resource_id)
    if as_json:
        print_json(found)
    elif found.holder:
        say(f"{found.path} is released as soon as this ends: {found.holder}")
    else:
        say(f"released {found.path}; kept until {moment(found.expires)}")


@app.command("ls")
def list_all(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List working directories and their holders.

    Also how long released ones are kept, and what each takes of the disk.
    """
    with asking_client(socket) as daemon:
        found = daemon.workdirs()
    columns = ("path", "held by", "since", "kept until", "times", "takes")
    print_found(found, columns, map(_row, found), "no working directories", as_json=as_json)


def _row(info: WorkdirInfo) -> tuple[str, ...]:
    takes = "?" if info.used_bytes is None else size(info.used_bytes)
    limit = f" of {size(info.max_bytes)}" if info.max_bytes else ""
    if info.max_files:
        limit += f", {'?' if info.used_files is None else info.used_files} of {info.max_files} files"
    times = str(info.acquisitions)
    return info.path, info.holder or "-", moment(info.acquired), moment(info.expires), times, takes + limit
