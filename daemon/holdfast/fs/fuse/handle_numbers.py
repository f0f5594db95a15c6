"""Handle numbers: the node's id, so that a daemon that did not open the file understands them."""

from __future__ import annotations

from holdfast.fs.inodes.node import Node
from holdfast.kernel import OpenFlag

_READ_ONLY = 1 << 63


def handle_of(node: Node, *, changes: bool) -> int:
    """Return the handle for an open of ``node``, which ``changes`` its bytes or may do so."""
    return node.id | (0 if changes else _READ_ONLY)


def node_of(handle: int) -> int:
    """Return the node id of a handle."""
    return handle & ~_READ_ONLY


def changes_nothing(handle: int) -> bool:
    """Say whether the open behind the handle can change nothing and has not, so that its close has nothing to send."""
    return handle & _READ_ONLY != 0


def listing_flags(node: Node, *, is_ours: bool) -> OpenFlag:
    """Return the flags for an open of a directory. The kernel may cache its listing if only this daemon changes it."""
    kept = OpenFlag.NONE if node.cache_is_stale else OpenFlag.KEEP_CACHE
    node.cache_is_stale = False
    return OpenFlag.CACHE_DIRECTORY | kept if is_ours else OpenFlag.NONE
