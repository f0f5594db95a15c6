"""Who makes a request."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """User, group and thread of a request: ``pid`` is the thread's id, 0 where the daemon can't see it."""

    uid: int
    gid: int
    pid: int


NOBODY = Caller(0, 0, 0)
"""A caller without a thread: nothing is known of what it is about to do."""
