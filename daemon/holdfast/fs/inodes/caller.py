"""The caller of a request."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """User, group and thread of a request. ``pid`` is the thread id, 0 if it is in another process namespace."""

    uid: int
    gid: int
    pid: int


NOBODY = Caller(0, 0, 0)
"""A caller without a thread: never matches a creation hint."""
