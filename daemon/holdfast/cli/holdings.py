"""holdings: which state of which query this node holds, and who else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from holdfast.cli import standby_rows
from holdfast.cli.exit_status import ExitStatus, exit_status
from holdfast.cli.options import DEFAULT_SOCKET, Json, Socket, absolute
from holdfast.cli.output import moment, print_found, print_json, say, size, warn
from holdfast.cli.progress import waiting
from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import HeldQueryInfo, HoldingsInfo, HoldingsReply

_COLUMNS = ("node", "query", "operator", "partitions", "newest version", "bytes", "as of")
_HIGHEST_WEIGHT = 100
"""The bound of Kubernetes for the weight of a preference; 1 is the lowest."""


def holdings(
    path: Annotated[str | None, typer.Argument(metavar="[PATH]", help="Only queries at or below this directory.")] = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="What the other nodes have told the stores, too.")] = False,
    standbys: Annotated[
        bool, typer.Option("--standbys", help="A line for each partition: where it runs, and its standby copies.")
    ] = False,
    affinity: Annotated[
        bool, typer.Option("--affinity", help="Print a node affinity for pods: the nodes by what they hold, as JSON.")
    ] = False,
    socket: Socket = DEFAULT_SOCKET,
    as_json: Json = False,
) -> None:
    """Show which state of which query this node holds.

    A line for each query and operator.
    """
    with ControlClient(socket) as daemon, waiting("asking the stores", as_json=as_json):
        found = daemon.holdings(absolute(path) if path else None, all_nodes=all_nodes or affinity or standbys)
        if path and not affinity and not any(node.queries for node in found.nodes):
            _check_exists(daemon, absolute(path))
    if affinity:
        print_json({"nodeAffinity": _affinity(found)})
        for problem in found.problems:
            warn(problem)
        return
    columns, rows = (standby_rows.COLUMNS, standby_rows.rows(found)) if standbys else (_COLUMNS, _rows(found))
    print_found(found, columns, rows, "no state is held", as_json=as_json)
    if not as_json:
        for problem in found.problems:
            say(problem)


def _check_exists(daemon: ControlClient, path: str) -> None:
    """Raise ``RefusedError`` if nothing is at ``path``: a misspelt name is an error, and no query without state.

    If the store does not answer nobody knows, and the holdings tell of that. An affinity may be asked for before a query has
    ever run.
    """
    try:
        daemon.entry(path)
    except RefusedError as problem:
        if exit_status(problem) is ExitStatus.NOT_THERE:
            raise


def _affinity(found: HoldingsReply) -> dict[str, Any]:
    """Return a NodeAffinity of Kubernetes that prefers nodes by their share of what the one that holds most has."""
    held: Counter[str] = Counter()
    for node in found.nodes:
        if not node.draining:
            held[node.node] += sum(store.size_bytes for query in node.queries for store in query.stores)
    holders = [(name, size_bytes) for name, size_bytes in held.most_common() if size_bytes]
    preferred = [
        {
            "weight": max(1, _HIGHEST_WEIGHT * size_bytes // holders[0][1]),
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]},
        }
        for name, size_bytes in holders
    ]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}


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
