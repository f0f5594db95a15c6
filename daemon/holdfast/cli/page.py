"""ui: the state of the node in a browser."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from holdfast import extras
from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, asking_client, asking_socket
from holdfast.cli.output import print_json_line, say

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_FORWARDING = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">\n'


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="A port of 127.0.0.1; default: any that is free.")] = 0,
    opens: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, if there is a display; or only print the address.")
    ] = True,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show the node in a browser.

    Cache, transfers, working directories, checkpoints. Runs until Ctrl-C.

    The page has the rights of whoever runs this command, and so has everybody who knows its address: keep that to yourself.
    """
    extras.require(extras.UI, "ui")
    import trio  # these take as long to import as all other commands together

    from holdfast.ui.loopback import Loopback

    with asking_client(socket) as daemon:
        daemon.status()  # says what is wrong if nobody answers
    loopback = Loopback.listening(port)
    try:
        if as_json:
            print_json_line({"address": loopback.address})
        else:
            say(f"the page is at {loopback.address}")
            say("it is for your eyes only, and ends with this command (Ctrl-C)")
        with tempfile.TemporaryDirectory(prefix="holdfast-ui-") as directory:
            if opens and any(os.environ.get(name) for name in _DISPLAYS):
                _open(Path(directory), loopback.address)
            trio.run(loopback.serve, asking_socket(socket))
    except* KeyboardInterrupt:  # in a group, if it came while a connection was waited for
        pass
    if not as_json:
        say("ended")


def _open(directory: Path, address: str) -> None:
    """Open ``address`` by way of a private file: everybody can see the arguments of a browser's process."""
    file = directory / "page.html"
    file.write_text(_FORWARDING.format(address=address))
    file.chmod(0o600)
    webbrowser.open(file.as_uri())
