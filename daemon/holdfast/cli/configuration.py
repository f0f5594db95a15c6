"""The commands config show and config reload."""

from __future__ import annotations

import os

import typer

from holdfast.cli.options import DEFAULT_SOCKET, ConfigFile, Json, Socket
from holdfast.cli.output import print_found, print_json, say
from holdfast.config import load
from holdfast.control.client import ControlClient

app = typer.Typer(help="The configuration.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, as_json: Json = False) -> None:
    """Print each setting and where its value comes from.

    They are those that a daemon which is started here would have. A daemon that runs may have been started with other
    options and another environment.
    """
    rows = load(config, os.environ).rows()
    found = [{"key": key, "value": value, "source": source} for key, value, source in rows]
    print_found(found, ("key", "value", "from"), rows, as_json=as_json)


@app.command()
def reload(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Let the daemon read its configuration again.

    What can be taken without a restart is in force at once.
    """
    with ControlClient(socket) as daemon:
        found = daemon.reload()
    if as_json:
        print_json(found)
        return
    if found.taken or not found.needs_restart:
        say(f"in force now: {', '.join(found.taken)}" if found.taken else "nothing has changed")
    if found.needs_restart:
        say(f"in force after 'holdfast restart': {', '.join(found.needs_restart)}")
