"""``./run demo``: the streaming job through everything that can happen to it, on one machine, in a few minutes."""
