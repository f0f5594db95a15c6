"""holdings: which state of which query this node holds, and who else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute
from holdfast.cli.output import moment, print_found, say, size
from holdfast.cli.progress import waiting
from holdfast.control.client import ControlClient
from holdfast.control.messages import HeldQueryInfo, HoldingsInfo, HoldingsReply


def holdings(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="Only queries at or below this directory.")] = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="What the other nodes have told the stores, too.")] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show which state of which query this node holds: a line for each query and operator."""
    with ControlClient(socket) as daemon, waiting("asking the stores", as_json=as_json):
        found = daemon.holdings(absolute(path) if path else None, all_nodes=all_nodes)
    columns = ("node", "query", "operator", "partitions", "newest version", "bytes", "as of")
    print_found(found, columns, _rows(found), "no state is held", as_json=as_json)
    if not as_json:
        for problem in found.problems:
            say(problem)


def _rows(found: HoldingsReply) -> Iterator[tuple[str, ...]]:
    for node in found.nodes:
        for query in node.queries:
            yield from _of_query(node, query)


def _of_query(node: HoldingsInfo, query: HeldQueryInfo) -> Iterator[tuple[str, ...]]:
    name = f"{node.node} (draining)" if node.draining else node.node
    for operator in sorted({store.operator for store in query.stores}):
        stores = [store for store in query.stores if store.operator == operator]
        partitions = {store.partition for store in stores}
        newest = max(store.version for store in stores)
        held = size(sum(store.size_bytes for store in stores))
        yield name, query.path, str(operator), str(len(partitions)), str(newest), held, moment(node.told)
