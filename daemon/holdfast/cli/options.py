"""Options shared by the commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from holdfast.control.client import ANSWER_SECONDS, ControlClient

DEFAULT_SOCKET = Path("/run/holdfast/control.sock")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Socket = Annotated[
    Path, typer.Option("--socket", envvar="HOLDFAST_SOCKET", help="The daemon's control socket.", readable=False)
]


ConfigFile = Annotated[Path | None, typer.Option("--config", help="The configuration file.", readable=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in cache.max_bytes=20GiB; may be given several times."),
]

LONGEST_SECONDS = 1e9
"""The longest time that can be given: 31 years. As nanoseconds it is still a number of 64 bits."""


def number(least: float = 0.0, most: float = LONGEST_SECONDS) -> Callable[[str | float], float]:
    """Return the parser of a number within bounds. Click's own takes "nan" for one, which is in no order to any bound."""

    def parsed(text: str | float) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not least <= found <= most:
            raise typer.BadParameter(f"{text!r} is no number from {least:g} to {most:,.0f}")
        return found

    return parsed


def asking_client(socket: Path, timeout_seconds: float = ANSWER_SECONDS) -> ControlClient:
    """Return a client for queries, at ``asking_socket``."""
    return ControlClient(asking_socket(socket), timeout_seconds)


def asking_socket(socket: Path) -> Path:
    """Return the socket for queries: ``socket``, or the public one beside it for users without access to that."""
    readable = socket.with_name("status.sock")
    if os.path.lexists(socket) and not os.access(socket, os.W_OK) and os.access(readable, os.W_OK):
        return readable
    return socket


def absolute(path: str) -> str:
    """Return an absolute path without touching the file system, which may hang."""
    return path if path.startswith("/") else f"{Path.cwd()}/{path}"
