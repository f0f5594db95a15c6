"""The rows of ``holdfast holdings --standbys``: the node on which each partition runs, and its standby copies. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.cli.output import size
from holdfast.control.messages import HeldStoreInfo, HoldingsInfo, HoldingsReply
from holdfast.system.partition_holder import Claim, holder_of_partition

COLUMNS = ("query", "partition", "runs on", "version", "standby", "batches behind", "missing")
_NOTHING = "–"


@dataclass(slots=True)
class _Copy:
    """A node's copy of a partition: its oldest newest version over all stores, and the bytes that it lacks."""

    version: int
    missing_bytes: int


@dataclass(slots=True)
class _Partition:
    """A partition: what each node has of it, by the node's place in the reply, and the standby copies by node."""

    claims: dict[int, Claim] = field(default_factory=dict)
    copies: dict[str, _Copy] = field(default_factory=dict)

    @property
    def holder(self) -> int | None:
        """The place in the reply of the node on which the partition runs."""
        return holder_of_partition(self.claims)

    def add(self, index: int, node: HoldingsInfo, store: HeldStoreInfo) -> None:
        """Take up what a node holds of one store."""
        claim = self.claims.get(index, Claim(0, 0, node.node))
        self.claims[index] = claim.also(store.version, store.size_bytes, is_copy=store.copy)
        if store.missing_bytes is not None:
            name = _name(node)
            before = self.copies.get(name, _Copy(store.version, 0))
            missing_bytes = max(before.missing_bytes, store.missing_bytes)
            self.copies[name] = _Copy(min(before.version, store.version), missing_bytes)


def rows(found: HoldingsReply) -> Iterator[tuple[str, ...]]:
    """Yield a row for each copy of a partition, and one for a partition without any."""
    for (path, number), partition in sorted(_partitions(found).items(), key=lambda item: item[0]):
        holder = partition.holder
        version = partition.claims[holder].own_version if holder is not None else 0
        runs_on = (_name(found.nodes[holder]), str(version)) if holder is not None else (_NOTHING, _NOTHING)
        here = (path, str(number), *runs_on)
        for standby, copy in sorted(partition.copies.items()):
            yield *here, standby, str(max(0, version - copy.version)), size(copy.missing_bytes)
        if not partition.copies:
            yield *here, _NOTHING, _NOTHING, _NOTHING


def uncovered_here(found: HoldingsReply) -> int:
    """Return the number of partitions that run on the node that was asked, and of which no standby has a complete copy."""
    return sum(
        partition.holder is not None
        and found.nodes[partition.holder].this_node
        and not any(copy.missing_bytes == 0 for copy in partition.copies.values())
        for partition in _partitions(found).values()
    )


def _partitions(found: HoldingsReply) -> dict[tuple[str, int], _Partition]:
    partitions: dict[tuple[str, int], _Partition] = {}
    for index, node in enumerate(found.nodes):
        for query in node.queries:
            for store in query.stores:
                partitions.setdefault((query.path, store.partition), _Partition()).add(index, node, store)
    return partitions


def _name(node: HoldingsInfo) -> str:
    return f"{node.node} (draining)" if node.draining else node.node
