"""Processes: the programs that tests start, their children, what they have open."""
