"""The assignment of standby copies to nodes: every daemon computes the same one from the same reports. Pure.

The nodes that may keep a copy of a partition are ordered by weighted rendezvous hashing; the first ones do, leaving out the
partition's holder. So a node that comes or goes moves only the copies that it gets or had, and when a standby becomes the
holder, the next node in the order takes its place. Copies go to racks other than the holder's and to different ones, as far
as there are such racks. A node that names no rack counts as a rack of its own.

Nothing here bounds the number of copies on a node: bounds would need all daemons to have read the same reports. The number
spreads as in a binomial distribution, so of 50 copies expected, 99.7 % of the nodes have 29 to 71.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.system.rendezvous import score, seed_of


class Node(NamedTuple):
    """A node of the fleet, with a name that no other one has.

    ``weight`` is positive: a node gets copies in proportion to it. ``rack`` names what fails together, "" is not known.
    ``takes_copies`` is false for a node that is drained, or has no standby copies configured.
    """

    name: str
    weight: float = 1.0
    rack: str = ""
    takes_copies: bool = True


class Fleet:
    """The nodes by which copies are assigned. ``copies`` is the number of standby copies that each partition gets."""

    def __init__(self, nodes: Iterable[Node], copies: int) -> None:
        known = sorted(nodes)
        self._copies = copies
        self._racks = _racks(known)
        self._takers = {node.name: node for node in known if node.takes_copies}

    def query(self, location: str) -> QueryAssignment:
        """Return the assignment of the query at ``location``."""
        seeds = {name: seed_of(location, name) for name in self._takers}
        return QueryAssignment(self._takers, self._racks, seeds, self._copies)


class QueryAssignment:
    """The assignment of one query's copies. Made by ``Fleet.query``."""

    def __init__(self, takers: Mapping[str, Node], racks: Mapping[str, str], seeds: Mapping[str, int], copies: int) -> None:
        self._takers = takers
        self._racks = racks
        self._seeds = seeds
        self._copies = copies

    def standbys(self, partition: int, holder: str | None) -> list[str]:
        """Return the nodes that keep a copy of ``partition``, best first; fewer than ``copies`` if there are too few.

        ``holder`` is the node on which the partition runs; None if it is not known, as of a node that is lost.
        """
        left = [name for name in self._takers if name != holder]
        left.sort(key=lambda name: (-self._score(name, partition), name))
        used = {self._rack(holder)} if holder is not None else set()
        chosen: list[str] = []
        while left and len(chosen) < self._copies:
            best = next((name for name in left if self._rack(name) not in used), left[0])
            left.remove(best)
            used.add(self._rack(best))
            chosen.append(best)
        return chosen

    def stands_by(self, node: str, partition: int, holder: str | None) -> bool:
        """Say whether ``node`` is one of ``standbys``. Mostly looks at a few of the other nodes only."""
        if node == holder or node not in self._takers or not self._copies:
            return False
        mine = self._score(node, partition)
        used = {self._rack(holder)} if holder is not None else set()
        better = 0
        for name in self._better(node, mine, partition):
            if name != holder and self._rack(name) not in used:
                used.add(self._rack(name))
                better += 1
            if better == self._copies:  # each choice finds one of these in a rack that is still free
                return False
        return node in self.standbys(partition, holder)

    def _better(self, node: str, mine: float, partition: int) -> Iterator[str]:
        return (name for name in self._takers if name != node and self._score(name, partition) > mine)

    def _score(self, name: str, partition: int) -> float:
        return score(self._seeds[name], partition, self._takers[name].weight)

    def _rack(self, name: str) -> str:
        return self._racks.get(name, name)


def _racks(nodes: Collection[Node]) -> dict[str, str]:
    """Return the rack of each node that names one; of none if all nodes name the same one, which tells nothing."""
    named = {node.name: f"rack {node.rack}" for node in nodes if node.rack}
    return named if len(named) < len(nodes) or len(set(named.values())) > 1 else {}
