"""Faults of a daemon: functions that change a step of the daemon's own code, which knows nothing of them.

``tests.support.daemons.faulty`` starts a daemon with some of them.
"""
