"""Handle numbers: the node's id, so that a daemon that did not open the file understands them."""

from __future__ import annotations

from holdfast.fs.inodes.node import Node
from holdfast.kernel import OpenFlag

_READ_ONLY = 1 << 63
KEPT_LISTING = OpenFlag.CACHE_DIRECTORY | OpenFlag.KEEP_CACHE
"""The open flags for a directory whose listing the kernel may cache."""


def handle_of(node: Node, *, reads_only: bool) -> int:
    """Return the handle for an open of ``node``."""
    return node.id | (_READ_ONLY if reads_only else 0)


def node_of(handle: int) -> int:
    """Return the node id of a handle."""
    return handle & ~_READ_ONLY


def changes_nothing(handle: int) -> bool:
    """Say whether the handle is read-only, so that its close has nothing to send."""
    return handle & _READ_ONLY != 0
