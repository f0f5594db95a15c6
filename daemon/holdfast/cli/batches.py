"""batches: what the batches of streaming queries took, and what the daemon had to do for them."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, asking_client
from holdfast.cli.output import counted, moment, print_json, say, size
from holdfast.control.messages import BatchInfo

_SHOWN_PARTS = 3
_SHORTEST_SECONDS = 0.05


def batches(
    query: Annotated[str | None, typer.Argument(help="Only those of the query with this name.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many of the last ones.")] = 20,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show the last batches of Spark's streaming queries: how long they took, with how many hits, misses and bytes."""
    with asking_client(socket) as daemon:
        found = daemon.batches(query)[-count:]
    if as_json:
        print_json(found)
        return
    for each in found:
        say(line(each))
    if not found:
        say("no driver on this node has reported a batch")


def line(batch: BatchInfo) -> str:
    """Return a batch on one line."""
    parts = sorted(((each, name) for name, each in batch.parts.items() if name != "triggerExecution"), reverse=True)
    longest = ", ".join(f"{name} {each:.1f} s" for each, name in parts[:_SHOWN_PARTS] if each >= _SHORTEST_SECONDS)
    state = f"; state: load {batch.load_seconds:.1f} s, commit {batch.commit_seconds:.1f} s" if batch.commit_seconds else ""
    misses = f"{batch.misses} {'miss' if batch.misses == 1 else 'misses'}"
    return (
        f"{moment(batch.time)}  {batch.query} (user {batch.uid}): batch {batch.batch} took {batch.seconds:.1f} s"
        f"{f' ({longest})' if longest else ''}: {misses}, {counted(batch.hits, 'hit')}, "
        f"{size(batch.fetched_bytes)} from the stores, {size(batch.uploaded_bytes)} to them, "
        f"{counted(batch.store_requests, 'request')}{state}"
    )
