"""The ring of nodes: whose reports a node reads to find out what it may keep copies of, however many nodes there are. Pure.

The nodes lie on a ring, in the order of a hash of their names. Only the ``SPAN`` nodes after a node may keep copies of what
it holds. To find its part of them, a node needs to know what the ``SPAN`` nodes before it hold, and whether the others that
may keep copies of it do: they are among these, or among the ``SPAN`` nodes after it, which keep copies of what it holds
itself. A node that comes or goes changes this for its neighbours on the ring, and for nobody else.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable

SPAN = 32
"""The number of nodes that may keep copies of what one node holds: enough to share a lost node's partitions evenly."""


class Ring:
    """The ring of the nodes whose reports are called ``names`` (``<node>.<part of the store directory's id>``)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._places = sorted((_place(name), name) for name in set(names))

    def __len__(self) -> int:
        return len(self._places)

    def after(self, name: str) -> list[str]:
        """Return the nodes that may keep copies of what ``name`` holds, the nearest first. It need not be on the ring."""
        return self._around(name, range(1, SPAN + 1))

    def before(self, name: str) -> list[str]:
        """Return the nodes of whose holdings ``name`` may keep copies, the nearest first: those that it is ``after``."""
        return self._around(name, range(-1, -SPAN - 1, -1))

    def neighbours(self, name: str) -> set[str]:
        """Return the nodes whose reports ``name`` has to read."""
        return {*self.before(name), *self.after(name)}

    def _around(self, name: str, steps: range) -> list[str]:
        place = (_place(name), name)
        index = bisect_left(self._places, place)
        is_here = index < len(self._places) and self._places[index] == place
        others = self._places[:index] + self._places[index + is_here :]
        first = index - 1 if steps.step > 0 else index
        return [others[(first + step) % len(others)][1] for step in steps[: len(others)]]


def _place(name: str) -> bytes:
    """Return a node's place. It keeps it when it comes back with an empty disk, and so with another id."""
    node = name.rpartition(".")[0] or name
    return hashlib.blake2b(node.encode("utf-8", "surrogateescape"), digest_size=8).digest()
