"""The rows of ``holdfast holdings --standbys``: the node on which each partition runs, and its standby copies. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.cli.output import size
from holdfast.control.messages import HeldStoreInfo, HoldingsInfo, HoldingsReply

COLUMNS = ("query", "partition", "runs on", "version", "standby", "batches behind", "missing")
_NOTHING = "–"


@dataclass(slots=True)
class _Copy:
    """A node's copy of a partition: its oldest newest version over all stores, and the bytes that it lacks."""

    version: int
    missing_bytes: int


@dataclass(slots=True)
class _Partition:
    """A partition: the node that has worked with the newest ``version``, and the standby copies by node.

    ``runs_here``: that node is the one whose daemon was asked.
    """

    holder: str = _NOTHING
    runs_here: bool = False
    version: int = 0
    copies: dict[str, _Copy] = field(default_factory=dict)

    def add(self, node: HoldingsInfo, store: HeldStoreInfo) -> None:
        """Take up what a node holds of one store."""
        name = f"{node.node} (draining)" if node.draining else node.node
        if not store.copy and store.version > self.version:
            self.holder, self.version, self.runs_here = name, store.version, node.this_node
        if store.missing_bytes is not None:
            before = self.copies.get(name, _Copy(store.version, 0))
            missing_bytes = max(before.missing_bytes, store.missing_bytes)
            self.copies[name] = _Copy(min(before.version, store.version), missing_bytes)


def rows(found: HoldingsReply) -> Iterator[tuple[str, ...]]:
    """Yield a row for each copy of a partition, and one for a partition without any."""
    for (path, number), partition in sorted(_partitions(found).items(), key=lambda item: item[0]):
        here = (path, str(number), partition.holder, str(partition.version) if partition.version else _NOTHING)
        for standby, copy in sorted(partition.copies.items()):
            yield *here, standby, str(max(0, partition.version - copy.version)), size(copy.missing_bytes)
        if not partition.copies:
            yield *here, _NOTHING, _NOTHING, _NOTHING


def uncovered_here(found: HoldingsReply) -> int:
    """Return the number of partitions that run on the node that was asked, and of which no standby has a complete copy."""
    return sum(
        partition.runs_here and not any(copy.missing_bytes == 0 for copy in partition.copies.values())
        for partition in _partitions(found).values()
    )


def _partitions(found: HoldingsReply) -> dict[tuple[str, int], _Partition]:
    partitions: dict[tuple[str, int], _Partition] = {}
    for node in found.nodes:
        for query in node.queries:
            for store in query.stores:
                partitions.setdefault((query.path, store.partition), _Partition()).add(node, store)
    return partitions
