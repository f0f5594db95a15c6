"""Who may have a connection to a control socket: how many in total, how many each user, and a reserve for root.

Pure: it counts. The kernel says who is at the other end of a connection (``callers``).
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
    """The connections to one socket that exist now, by the user's id."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._connections: Counter[int] = Counter()

    def admit(self, uid: int) -> bool:
        """Count one more connection of ``uid``, and say whether it may exist. Each one admitted must ``leave``."""
        taken = self._connections.total()
        if uid == 0:
            admitted = taken < self._caps.total
        else:
            mine = self._connections[uid]
            admitted = mine < self._caps.each_user and taken < self._caps.total - self._caps.for_root
        if admitted:
            self._connections[uid] += 1
        return admitted

    def leave(self, uid: int) -> None:
        """One connection of ``uid`` is gone."""
        self._connections[uid] -= 1
        if not self._connections[uid]:
            del self._connections[uid]
