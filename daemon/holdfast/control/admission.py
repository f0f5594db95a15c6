"""Limits on the number of connections: in total and of each user, with a reserve for root.

Pure: it only counts. The kernel says who is at the other end of a connection (``callers``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caps:
    """Numbers of connections: all together, those of one user other than root, and how many of all only root may take."""

    total: int
    each_user: int
    for_root: int


class Admission:
    """The connections to one socket that exist now, counted by peer: a user's id, or an address."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._connections: Counter[int | str] = Counter()

    def admit(self, peer: int | str) -> bool:
        """Count one more connection of ``peer``, and say whether it may exist. Each one admitted must ``leave``."""
        taken = self._connections.total()
        if peer == 0:
            admitted = taken < self._caps.total
        else:
            admitted = not self._has_its_number(peer) and taken < self._caps.total - self._caps.for_root
        if admitted:
            self._connections[peer] += 1
        return admitted

    def who_gives_way(self, peer: int | str) -> int | str:
        """Return the peer that must lose a connection if ``peer`` is to have one more: itself, or whoever has most."""
        if self._has_its_number(peer) or not self._connections:
            return peer
        return max(self._connections, key=self._connections.__getitem__)

    def leave(self, peer: int | str) -> None:
        """Take back the count of a connection of ``peer`` that is gone."""
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def _has_its_number(self, peer: int | str) -> bool:
        return peer != 0 and self._connections[peer] >= self._caps.each_user
