"""The caller of a request, and its supplementary groups, read from /proc when rights depend on them.

The kernel makes the whole text for each read, and a process of a user namespace may have 65,536 groups: then a read takes
tens of milliseconds of the event loop. After a read that took long, no more are made for many times as long for processes
of the same owner: the user, or the owner of the user namespace. In this rest, the process of the long read has the groups
that were read, and the others have none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from holdfast.system.processes import answerable, supplementary_groups

_LONG_SECONDS = 0.002
"""The processor time above which a read is long: that of some thousand groups, more than any directory service gives."""
_RESTS = 50


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


class _Rest(NamedTuple):
    until: float
    caller: Asker
    groups: Container[int]


@dataclass(eq=False)
class CallerGroups:
    """Reads the groups of callers. ``clock`` is like ``time.monotonic``, ``processor_seconds`` like ``time.thread_time``."""

    _clock: Callable[[], float] = time.monotonic
    _processor_seconds: Callable[[], float] = time.thread_time
    _rests: dict[tuple[int, int], _Rest] = field(init=False, default_factory=dict)
    """The rests, by owner of the process (``Asker.answerable``). Nearly always empty: then nobody asks who that is."""

    def of(self, caller: Asker) -> Container[int]:
        """Return the groups of a caller, as far as they may be read now."""
        if self._rests and (rest := self._rest_of(caller)) is not None:
            return rest.groups if rest.caller == caller else frozenset()
        began = self._processor_seconds()
        groups = caller.supplementary_groups()
        took = self._processor_seconds() - began
        if took > _LONG_SECONDS:
            self._rests[caller.answerable()] = _Rest(self._clock() + _RESTS * took, caller, groups)
        return groups

    def _rest_of(self, caller: Asker) -> _Rest | None:
        now = self._clock()
        self._rests = {owner: rest for owner, rest in self._rests.items() if now < rest.until}
        return self._rests.get(caller.answerable()) if self._rests else None
