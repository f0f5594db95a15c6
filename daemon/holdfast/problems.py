"""Beginnings of sentences about a node's problems, by which a reader of its status knows them, and a full disk's measure."""

STORE = "the store "
DRAINING = "this node is draining"
LONG_UNSENT = "files have been only on this node"
_CLEARLY_BELOW = 0.9
"""The share of the reserve below which a disk is full. Eviction keeps the reserve free, so a disk that is only just below it
is at work. The alert has the same share."""


def is_clearly_below(free: int, reserve: int) -> bool:
    """Say whether so much less than the reserve is free, of bytes or of inodes, that a disk is full."""
    return free < _CLEARLY_BELOW * reserve
