"""Beginnings of some sentences that say what is wrong with a node, by which a reader of its status knows them."""

STORE = "the store "
DRAINING = "this node is draining"
LONG_UNSENT = "files have been only on this node"
