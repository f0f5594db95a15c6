"""Questions about queries in turn: of more than can be asked at once, those come first that were asked longest ago. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turns:
    """Takes turns, ``most`` at once, each no more often than every so many seconds. Times are in seconds."""

    most: int
    _taken: dict[str, float] = field(default_factory=dict, init=False)

    def due(self, names: Iterable[str], first: Iterable[str], now: float, every_seconds: float = 0.0) -> list[str]:
        """Return whose turn it is now; those in ``first`` come before others. Names that are not given are forgotten."""
        given, preferred = set(names), set(first)
        for name in self._taken.keys() - given:
            del self._taken[name]
        waiting = [name for name in given if self._taken.get(name, -math.inf) + every_seconds <= now]
        waiting.sort(key=lambda name: (name not in preferred, self._taken.get(name, -math.inf), name))
        return waiting[: self.most]

    def took(self, name: str, now: float) -> None:
        """Note that it was a name's turn."""
        self._taken[name] = now
