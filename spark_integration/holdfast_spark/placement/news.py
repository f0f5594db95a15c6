"""The nodes' holdings of a query's state, as this node's daemon knows them, in the types of ``assignment``.

Executors say where they are by a node's name, a host's name or an address; a node belongs to them if it knows itself by
that. Their places (``Executor.place``) are what state is assigned to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.control.messages import HeldStoreInfo, HoldingsInfo
from holdfast.system.partition_holder import Claim, holder_of_partition
from holdfast_spark.placement.assignment import Held, Holders
from holdfast_spark.placement.driver import Executor


def by_partition(nodes: Sequence[HoldingsInfo], executors: Iterable[Executor], path: str) -> dict[int, dict[str, Held]]:
    """Return what each executor's place holds of each partition of the query at ``path``, over all operators and stores.

    If a place has several daemons, the one that has told last counts. A node that is drained holds nothing.
    """
    last = _ran_last(nodes, path)
    found: dict[int, dict[str, Held]] = {}
    for place, node in nodes_by_place(nodes, executors).items():
        for store in _stores(node, path) if not node.draining else ():
            holders = found.setdefault(store.partition, {})
            before = holders.get(place, Held(0, 0))
            missing = [each for each in (before.missing_bytes, store.missing_bytes) if each is not None]
            holders[place] = Held(
                max(before.version, store.version),
                before.size_bytes + store.size_bytes,
                last.get(store.partition) is node,
                max(missing, default=None),
            )
    return found


def _ran_last(nodes: Sequence[HoldingsInfo], path: str) -> dict[int, HoldingsInfo]:
    """Return the node on which each partition ran last, by all that is told. It need not have executors."""
    claims: dict[int, dict[int, Claim]] = {}
    for index, node in enumerate(nodes):
        for store in _stores(node, path):
            of_partition = claims.setdefault(store.partition, {})
            before = of_partition.get(index, Claim(0, 0, node.node))
            of_partition[index] = before.also(store.version, store.size_bytes, is_copy=store.copy)
    holders = ((partition, holder_of_partition(each)) for partition, each in claims.items())
    return {partition: nodes[index] for partition, index in holders if index is not None}


def _stores(node: HoldingsInfo, path: str) -> Iterator[HeldStoreInfo]:
    return (store for query in node.queries if query.path == path for store in query.stores)


def holding_nodes(nodes: Iterable[HoldingsInfo], path: str) -> list[HoldingsInfo]:
    """Return the nodes that hold something of the query at ``path``."""
    return [node for node in nodes if any(query.path == path and query.stores for query in node.queries)]


def have_executors(nodes: Iterable[HoldingsInfo], executors: Sequence[Executor]) -> bool:
    """Say whether each of the nodes has an executor."""
    names = {name for executor in executors for name in _names(executor)}
    return all(not names.isdisjoint(_names_of(node)) for node in nodes)


def nodes_by_place(nodes: Iterable[HoldingsInfo], executors: Iterable[Executor]) -> dict[str, HoldingsInfo]:
    """Return the node at each executor's place, as far as it is one that reports."""
    known = {name: node for node in sorted(nodes, key=lambda node: node.told) for name in _names_of(node)}
    named = ((executor.place, name) for executor in executors for name in reversed(_names(executor)))
    return {place: known[name] for place, name in named if name in known}


def draining_places(nodes: Iterable[HoldingsInfo], executors: Iterable[Executor]) -> set[str]:
    """Return the executors' places whose node is about to go."""
    return {place for place, node in nodes_by_place(nodes, executors).items() if node.draining}


def moved_to_strangers(placed: Iterable[str], held: Mapping[int, Holders]) -> dict[str, list[int]]:
    """Return, by place, the partitions that are to go where their state is not, or not all of it, though it is somewhere."""
    moved: dict[str, list[int]] = {}
    for partition, place in enumerate(placed):
        holders = held.get(partition, {})
        if holders and (place not in holders or holders[place].missing_bytes):
            moved.setdefault(place, []).append(partition)
    return moved


def _names(executor: Executor) -> list[str]:
    """Return the names of an executor's place, the best first."""
    return [name.lower() for name in (executor.node, executor.host) if name]


def _names_of(node: HoldingsInfo) -> set[str]:
    return {name.lower() for name in (node.node, *node.hosts)}
