"""config show."""

from __future__ import annotations

import os

import typer

from holdfast.cli.options import ConfigFile, Json
from holdfast.cli.output import print_found
from holdfast.config import load

app = typer.Typer(help="The configuration.", no_args_is_help=True)


@app.command()
def show(
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Print every setting in force and where its value comes from."""
    rows = load(config, os.environ).rows()
    found = [{"key": key, "value": value, "source": source} for key, value, source in rows]
    print_found(found, ("key", "value", "from"), rows, as_json=as_json)
