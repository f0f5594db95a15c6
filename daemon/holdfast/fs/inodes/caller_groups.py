"""Supplementary groups of callers, read from /proc when rights depend on them.

The kernel makes the whole text for each read, and a process of a user namespace may have 65,536 groups: then a read takes
tens of milliseconds of the event loop. Whoever answers for a process for which it took long, its user or the owner of its
user namespace, has a rest of many times as long. Until it is over, that process has the groups that were read, and the
others of the same owner have none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import NamedTuple

from holdfast.fs.inodes.caller import Asker

_LONG_SECONDS = 0.002
"""The limit of processor time, which a few thousand groups of a process take: more than any directory service gives."""
_RESTS = 50


class _Rest(NamedTuple):
    until: float
    caller: Asker
    groups: Container[int]


class CallerGroups:
    """Reads the groups of callers. ``clock`` is like ``time.monotonic``, ``processor_seconds`` like ``time.thread_time``."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, processor_seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._processor_seconds = processor_seconds
        self._rests: dict[tuple[int, int], _Rest] = {}
        """The rests, by who answers for the caller. Nearly always empty: then nobody asks who that is."""

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
