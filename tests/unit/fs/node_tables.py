"""A node table of a mount that had no daemon before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from unittest.mock import MagicMock

from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_recovery import NodeRecovery
from holdfast.fs.inodes.node_table import NodeTable
from holdfast.fs.inodes.pending_unlinks import RecentInodes
from holdfast.system.file_id import FileId


class NothingEarlier(NodeRecovery):
    """The nodes of an earlier daemon, of which there are none."""

    def __init__(self) -> None:
        super().__init__(MagicMock(), set, MagicMock(), MagicMock())


def node_table(
    root: FileId,
    *,
    earlier: NodeRecovery | None = None,
    reserved: Iterable[FileId] = (),
    left: Callable[[Node], None] = lambda _: None,
) -> NodeTable:
    """Return an empty table that keeps no records."""
    ids = RecentInodes(lambda: 0.0)
    for inode in reserved:
        ids.add(inode)
    return NodeTable(root, 0, records=MagicMock(), reserved=ids, earlier=earlier or NothingEarlier(), left=left, zones={})
