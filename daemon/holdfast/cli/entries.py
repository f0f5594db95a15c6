"""ls, stat, why, verify, prefetch, evict, pin, unpin, pins: files and directories in the mount."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute, asking_client
from holdfast.cli.output import moment, print_found, print_json, say, size
from holdfast.cli.progress import follow
from holdfast.control.client import ControlClient
from holdfast.control.messages import EntryInfo, Progress

PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A path in the mount.")]
PathArguments = Annotated[list[str], typer.Argument(metavar="PATH…", help="Paths in the mount.")]


def ls(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="A directory in the mount; default: its root.")
    ] = None,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """List a directory, with the state of each file."""
    with asking_client(socket) as daemon:
        found = list(daemon.entries(absolute(path) if path else daemon.status().mountpoint))
    rows = ((_flags(entry), size(entry.size_bytes), moment(entry.modified), Path(entry.path).name) for entry in found)
    print_found(found, ("state", "size", "modified", "name"), rows, "empty", as_json=as_json)


def stat(path: PathArgument, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Show what is known about a file: object, digest, state."""
    with asking_client(socket) as daemon:
        entry = daemon.entry(absolute(path))
    rows = [
        ("path", entry.path),
        ("type", entry.type),
        ("zone", entry.zone),
        ("state", _flags(entry)),
        ("size", f"{size(entry.size_bytes)} ({entry.size_bytes} bytes)"),
        ("modified", moment(entry.modified)),
    ]
    optional = (("name", entry.kind), ("object", entry.object), ("etag", entry.etag), ("digest", entry.digest))
    rows += [(name, value) for name, value in optional if value]
    if entry.used:
        rows.append(("last used", moment(entry.used)))
    print_found(entry, ("", ""), rows, as_json=as_json)


def why(path: PathArgument, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Explain the state of a file, and what an open would do."""
    with asking_client(socket) as daemon:
        explanation = daemon.why(absolute(path))
    if as_json:
        print_json(explanation)
    else:
        say(explanation.path)
        for reason in explanation.reasons:
            say(f"  {reason}")


def verify(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All files in the cache.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Check files against their digests; drop those that differ. Exits with 1 if any file was dropped."""
    if (path is None) != everything:
        raise typer.BadParameter("give a PATH or --all")
    with ControlClient(socket) as daemon:
        problems = follow("verifying", daemon.verify(absolute(path) if path else None), "verified", as_json=as_json)
    if problems:
        raise typer.Exit(1)


def prefetch(paths: PathArguments, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Fetch files, or whole directories, that are not on this node. Exits with 1 if something could not be fetched."""
    with ControlClient(socket) as daemon:
        steps = _one_after_the_other(daemon.prefetch(absolute(path)) for path in paths)
        problems = follow("fetching", steps, "fetched", as_json=as_json)
    if problems:
        raise typer.Exit(1)


def evict(path: PathArgument, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Drop copies that the store has too, to make room."""
    with ControlClient(socket) as daemon:
        follow("evicting", daemon.evict(absolute(path)), "evicted", as_json=as_json)


def pin(
    path: PathArgument,
    future: Annotated[bool, typer.Option("--future", help="Pin the path even if nothing is there yet.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Never evict a file, or anything below a directory."""
    with ControlClient(socket) as daemon:
        daemon.pin(absolute(path), future=future)
    _done(f"pinned {absolute(path)}", as_json=as_json)


def pins(socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """List what is pinned, oldest first."""
    with ControlClient(socket) as daemon:
        found = daemon.pins()
    print_found(found, ("",), ((each.path,) for each in found), "nothing is pinned", as_json=as_json)


def unpin(path: PathArgument, socket: Socket = DEFAULT_SOCKET, as_json: Json = False) -> None:
    """Remove a pin."""
    with ControlClient(socket) as daemon:
        daemon.unpin(absolute(path))
    _done(f"unpinned {absolute(path)}", as_json=as_json)


def _done(sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"done": sentence})
    else:
        say(sentence)


def _one_after_the_other(actions: Iterable[Iterator[Progress]]) -> Iterator[Progress]:
    """Chain the steps of several actions into one."""
    done = total = bytes_done = 0
    for steps in actions:
        last = Progress(done=0, total=0, bytes_done=0)
        for last in steps:
            yield msgspec.structs.replace(
                last, done=done + last.done, total=total + last.total, bytes_done=bytes_done + last.bytes_done
            )
        done, total, bytes_done = done + last.done, total + last.total, bytes_done + last.bytes_done


def _flags(entry: EntryInfo) -> str:
    words = [entry.state, *(["open"] if entry.open else []), *(["pinned"] if entry.pinned else [])]
    return f"{entry.type}, {' '.join(words)}" if entry.type != "file" else " ".join(words)
