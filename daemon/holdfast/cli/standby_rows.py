"""The rows of ``holdfast holdings --standbys``: where each partition runs, and its standby copies. Pure."""

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
    """A partition: the node that has worked with the newest ``version``, and the standby copies by node."""

    holder: str = _NOTHING
    version: int = 0
    copies: dict[str, _Copy] = field(default_factory=dict)

    def add(self, node: str, store: HeldStoreInfo) -> None:
        """Take up what a node holds of one store."""
        if not store.copy and store.version > self.version:
            self.holder, self.version = node, store.version
        if store.missing_bytes is not None:
            before = self.copies.get(node, _Copy(store.version, 0))
            missing_bytes = max(before.missing_bytes, store.missing_bytes)
            self.copies[node] = _Copy(min(before.version, store.version), missing_bytes)


def rows(found: HoldingsReply) -> Iterator[tuple[str, ...]]:
    """Yield a row for each copy of a partition, and one for a partition without any."""
    partitions: dict[tuple[str, int], _Partition] = {}
    for node in found.nodes:
        for query in node.queries:
            for store in query.stores:
                partitions.setdefault((query.path, store.partition), _Partition()).add(_name(node), store)
    for (path, number), partition in sorted(partitions.items(), key=lambda item: item[0]):
        here = (path, str(number), partition.holder, str(partition.version) if partition.version else _NOTHING)
        for standby, copy in sorted(partition.copies.items()):
            yield *here, standby, str(max(0, partition.version - copy.version)), size(copy.missing_bytes)
        if not partition.copies:
            yield *here, _NOTHING, _NOTHING, _NOTHING


def _name(node: HoldingsInfo) -> str:
    return f"{node.node} (draining)" if node.draining else node.node
