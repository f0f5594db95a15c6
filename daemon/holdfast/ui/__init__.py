"""The page: what a browser shows of a node, and the ways a browser gets to it, since it speaks no Unix sockets."""
