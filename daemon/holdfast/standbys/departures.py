"""Nodes that have lost partitions since they spoke. They count as silent sooner: a lost node is one of them.

Every node that keeps copies speaks regularly, and a late word tells little by itself. But when a node is lost, others go on
with its partitions within seconds, and tell that at once. A node from which partitions have gone, and whose next word is
overdue, counts as silent. It may also be alive, and late just then: that costs a few copies, which are dropped again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_LEFT_BEHIND = 0.75
"""The part of its partitions up to which a node has lost some. Not all of those that go on with them are neighbours."""


class _Word(NamedTuple):
    """A node's last word: when it was written, and how many partitions the node held when it was read first.

    ``held_before`` is the same for the word before.
    """

    written: float
    held: int
    held_before: int


@dataclass(slots=True)
class Departures:
    """The last words of nodes, by name, and what the nodes held then."""

    _words: dict[str, _Word] = field(default_factory=dict, init=False)

    def look(self, written: Mapping[str, float], held: Mapping[str, int]) -> set[str]:
        """Return the nodes that have lost partitions since they spoke.

        ``written`` has the time of each node's last word, ``held`` the number of partitions that it holds by what all tell.
        When both have changed since the last look it is not known which came first; it counts as lost until the next word.
        """
        for name in self._words.keys() - written.keys():
            del self._words[name]
        for name, at in written.items():
            last = self._words.get(name)
            if last is None or last.written != at:
                self._words[name] = _Word(at, held.get(name, 0), last.held if last is not None else 0)
        return {name for name, word in self._words.items() if _has_lost(held.get(name, 0), max(word.held, word.held_before))}


def _has_lost(held: int, before: int) -> bool:
    return before > 0 and held <= _LEFT_BEHIND * before
