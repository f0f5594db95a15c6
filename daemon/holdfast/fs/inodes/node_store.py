"""Storage of node records for the next daemon."""

from __future__ import annotations

from holdfast.fs.inodes.node import Node
from holdfast.session import NodeRecord, SessionRecords


class NodeStore:
    """Writes session records of the nodes whose id is not an inode number."""

    def __init__(self, records: SessionRecords) -> None:
        self._records = records
        self.drop = records.drop

    def keep(self, node: Node) -> None:
        """Write or update the record of a node."""
        parent, name = (node.parent.id, node.name) if node.parent is not None else (0, b"")
        self._records.keep(node.id, NodeRecord(node.backing, node.is_directory, parent, name))
