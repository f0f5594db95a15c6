"""The nodes' holdings of a query's state, as this node's daemon knows them, in the types of ``assignment``.

Executors say where they are by a host's name or an address; a node belongs to an executor's host if it knows itself by that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.control.messages import HoldingsInfo
from holdfast_spark.placement.assignment import Held, Holders


def by_partition(nodes: Iterable[HoldingsInfo], hosts: Collection[str], path: str) -> dict[int, dict[str, Held]]:
    """Return what each of ``hosts`` holds of each partition of the query at ``path``, over all its operators and stores.

    If a host has several daemons, the one that has told last counts. A node that is drained holds nothing.
    """
    node_of = _node_of_hosts(nodes, hosts)
    found: dict[int, dict[str, Held]] = {}
    for host, node in node_of.items():
        for query in node.queries:
            if query.path != path or node.draining:
                continue
            for store in query.stores:
                holders = found.setdefault(store.partition, {})
                before = holders.get(host, Held(0, 0))
                holders[host] = Held(max(before.version, store.version), before.size_bytes + store.size_bytes)
    return found


def holding_nodes(nodes: Iterable[HoldingsInfo], path: str) -> list[HoldingsInfo]:
    """Return the nodes that hold something of the query at ``path``."""
    return [node for node in nodes if any(query.path == path and query.stores for query in node.queries)]


def are_on(nodes: Iterable[HoldingsInfo], hosts: Collection[str]) -> bool:
    """Say whether each of the nodes is one of ``hosts``."""
    return all(any(_knows_itself_as(node, host) for host in hosts) for node in nodes)


def draining_hosts(nodes: Iterable[HoldingsInfo], hosts: Collection[str]) -> set[str]:
    """Return those of ``hosts`` whose node is about to go."""
    return {host for host, node in _node_of_hosts(nodes, hosts).items() if node.draining}


def moved_to_strangers(placed: Iterable[str], held: Mapping[int, Holders]) -> dict[str, list[int]]:
    """Return, by host, the partitions that are to go where nothing of their state is, though it is somewhere."""
    moved: dict[str, list[int]] = {}
    for partition, host in enumerate(placed):
        holders = held.get(partition, {})
        if holders and host not in holders:
            moved.setdefault(host, []).append(partition)
    return moved


def _node_of_hosts(nodes: Iterable[HoldingsInfo], hosts: Collection[str]) -> dict[str, HoldingsInfo]:
    newest_last = sorted(nodes, key=lambda node: node.told)
    return {host: node for node in newest_last for host in hosts if _knows_itself_as(node, host)}


def _knows_itself_as(node: HoldingsInfo, host: str) -> bool:
    return host.lower() in {name.lower() for name in (node.node, *node.hosts)}
