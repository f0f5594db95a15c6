"""What is wrong with a node: beginnings of some sentences, by which a reader of its status knows them, and a measure."""

STORE = "the store "
DRAINING = "this node is draining"
LONG_UNSENT = "files have been only on this node"
CLEARLY_BELOW = 0.9
"""The share of the reserve below which a disk is full. Eviction keeps the reserve free, so a disk that is only just below it
is at work. The alert has the same share."""
