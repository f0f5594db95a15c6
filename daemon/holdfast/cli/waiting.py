"""wait: waits until the mount answers, for units and scripts that are to start on it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, asking_client, number
from holdfast.cli.output import print_json, say
from holdfast.control.client import RefusedError
from holdfast.errors import DaemonUnreachableError, MountpointError, RemoteUnavailableError
from holdfast.mount import mountpoint

_PAUSE_SECONDS = 0.2
_STORES_PAUSE_SECONDS = 1.0
_STORE_SECONDS = 5.0
_SHORTEST_SECONDS = 2.0  # for an answer, also when the time is over: a machine with much to do gives it late
_NO_NAME = ".holdfast-wait"


def wait(
    timeout: Annotated[float, typer.Option(parser=number(), metavar="SECONDS", help="How long.")] = 60.0,
    stores: Annotated[bool, typer.Option("--stores", help="Wait until all stores answer, too.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Wait until the mount answers; fail if it does not in time.

    The daemon is asked where it is mounted, and a directory is read there. An empty directory in its place is not accepted.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            path = _read_through(socket, deadline)
            if stores:
                _check_stores(socket, deadline)
            break
        except (DaemonUnreachableError, MountpointError) as problem:
            if time.monotonic() >= deadline:
                raise type(problem)(f"no mount has answered within {timeout:g} s: {problem}") from None
        except RemoteUnavailableError as problem:
            if time.monotonic() >= deadline:
                raise RemoteUnavailableError(f"not all stores have answered within {timeout:g} s: {problem}") from None
        time.sleep(_STORES_PAUSE_SECONDS if stores else _PAUSE_SECONDS)
    print_json({"mountpoint": path}) if as_json else say(f"{path} answers")


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), _SHORTEST_SECONDS)


def _check_stores(socket: Path, deadline: float) -> None:
    """Raise ``RemoteUnavailableError`` if a store does not answer.

    The daemon learns that a store answers again from a request to it alone, so one that is down is asked for a name.
    """
    with asking_client(socket, _left(deadline)) as client:
        status = client.status()
    for name in (name for name, store in status.remotes.items() if not store.up):
        with suppress(RefusedError, DaemonUnreachableError), asking_client(socket, _STORE_SECONDS) as client:
            client.entry(f"{status.mountpoint}/{name}/{_NO_NAME}")
    with asking_client(socket, _left(deadline)) as client:
        for name, store in client.status().remotes.items():
            if not store.up:
                raise RemoteUnavailableError(f"{name}: {store.problem}")


def _read_through(socket: Path, deadline: float) -> str:
    """Read the root of the daemon's mount; return its path.

    Raises ``DaemonUnreachableError`` and ``MountpointError``.
    """
    with asking_client(socket, _left(deadline)) as client:
        path = client.status().mountpoint
    mount = mountpoint.mounted_on(path)
    if mount is None or mount.file_system != mountpoint.FILE_SYSTEM:
        raise MountpointError(f"the daemon serves {path}, but this process sees no Holdfast mounted there")
    if mountpoint.life(path, reads=True) is not mountpoint.Life.ALIVE:
        raise MountpointError(f"the mount at {path} does not answer")
    return path
