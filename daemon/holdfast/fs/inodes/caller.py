"""The caller of a request."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, Protocol

from holdfast.system.processes import answerable, supplementary_groups


class Asker(Protocol):
    """A caller, as far as rights depend on it."""

    @property
    def uid(self) -> int:
        """The user id."""

    @property
    def gid(self) -> int:
        """The id of the primary group."""

    def supplementary_groups(self) -> Container[int]:
        """Return the other groups. This may be slow: ask only if they matter."""

    def answerable(self) -> tuple[int, int]:
        """Return who answers for what the caller costs (``processes.answerable``)."""


class Caller(NamedTuple):
    """User, group and thread of a request. ``pid`` is the thread id, 0 if it is in another process namespace."""

    uid: int
    gid: int
    pid: int

    def supplementary_groups(self) -> Container[int]:
        """Return the groups that the thread has now."""
        return supplementary_groups(self.pid, self.uid, self.gid)

    def answerable(self) -> tuple[int, int]:
        """Return the user, or the owner of the user namespace that the thread is in."""
        return answerable(self.pid, self.uid)


NOBODY = Caller(0, 0, 0)
"""A caller without a thread: never matches a creation hint."""
