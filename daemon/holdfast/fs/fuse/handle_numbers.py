"""Handle numbers: the node's id, so that a daemon that did not open the file understands them."""

from __future__ import annotations

from holdfast.fs.inodes.node import Node
from holdfast.kernel import OpenFlag

_READ_ONLY = 1 << 63
KEPT_LISTING = OpenFlag.CACHE_DIRECTORY | OpenFlag.KEEP_CACHE
"""The open flags for a directory whose listing the kernel may cache."""


def handle_of(node: Node, *, changes: bool) -> int:
    """Return the handle for an open of ``node``, which ``changes`` its bytes or may do so."""
    return node.id | (0 if changes else _READ_ONLY)


def node_of(handle: int) -> int:
    """Return the node id of a handle."""
    return handle & ~_READ_ONLY


def changes_nothing(handle: int) -> bool:
    """Say whether the open behind the handle can change nothing and has not, so that its close has nothing to send."""
    return handle & _READ_ONLY != 0
