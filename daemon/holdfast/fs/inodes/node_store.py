"""What the node table has written down for the next daemon (``nodes.NodeKeeper``)."""

from __future__ import annotations

from holdfast.fs.inodes.nodes import Node
from holdfast.session import NodeRecord, SessionRecords


class NodeStore:
    """Keeps in the session what an id stands for that is no inode number."""

    def __init__(self, records: SessionRecords) -> None:
        self._records = records
        self.drop = records.drop

    def keep(self, node: Node) -> None:
        """Write down, or write anew, what the node's id stands for."""
        parent, name = (node.parent.id, node.name) if node.parent is not None else (0, b"")
        self._records.keep(node.id, NodeRecord(node.backing, node.is_directory, parent, name))
