"""The assignment of partitions to nodes: each goes to a node that holds its state, newest and most first. Where the node
that worked with a partition is gone, that is its standby.

No node gets much more than its share. Pure. A node's share of the partitions is by its cores. It gets at most a quarter
more, rounded to whole partitions, and at least a quarter less: a node that has just come holds nothing, and would get
nothing otherwise. Partitions that nobody holds go by a weighted rendezvous hash of query, partition and node: the same on
every driver and in every run.

All stateful operators of a query that have equally many partitions are placed together: where two of them are in one stage,
one task works on both, and could not be on two nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.system.rendezvous import score, seed_of

_MORE_OR_LESS = 0.25
_NEXT_TO_NOTHING = 20
"""The divisor of the largest holding: any holding below the result counts as next to nothing."""


class Held(NamedTuple):
    """The state of a partition that a node holds: the newest version, and its bytes.

    ``ran_last``: the partition ran on this node last, so it has all of it, although its version may have been told long ago.
    ``missing_bytes`` is what is known to be missing.
    """

    version: int
    size_bytes: int
    ran_last: bool = False
    missing_bytes: int = 0


Holders = Mapping[str, Held]
"""The holdings of one partition's state, by node."""


@dataclass(slots=True)
class _Node:
    """A node with its bounds; ``seed`` goes into its scores, ``partitions`` are those that it has got so far."""

    name: str
    cores: int
    share: float
    seed: int
    partitions: list[int] = field(default_factory=list)

    @property
    def most(self) -> int:
        return max(math.ceil(self.share), math.floor(self.share * (1 + _MORE_OR_LESS)))

    @property
    def least(self) -> int:
        return math.floor(self.share * (1 - _MORE_OR_LESS))

    @property
    def load(self) -> int:
        return len(self.partitions)


def assign(
    query: str,
    partitions: int,
    cores: Mapping[str, int],
    held: Mapping[int, Holders],
    current: Mapping[int, str] | None = None,
) -> list[str]:
    """Return the node of each partition, ``0`` to ``partitions - 1``.

    ``cores`` has the nodes, at least one, with more than no core each; holders that are not among them don't count.
    ``current``: where partitions run now, which counts more than any holding. Takes time in proportion to partitions times
    nodes: 0.2 s for 2,000 and 40.
    """
    total = sum(cores.values())
    nodes = {
        name: _Node(name, cores[name], partitions * cores[name] / total, seed_of(query, name)) for name in sorted(cores)
    }
    left = _place_held(nodes, partitions, held, current or {})
    _place_rest(nodes, left)
    _raise_to_least(nodes, held)
    placed = {partition: node.name for node in nodes.values() for partition in node.partitions}
    return [placed[partition] for partition in range(partitions)]


def _place_held(
    nodes: Mapping[str, _Node], partitions: int, held: Mapping[int, Holders], current: Mapping[int, str]
) -> list[int]:
    """Place what somebody holds, the largest first; return the rest, among it what found no room with its holders."""
    wishes = []
    for partition in range(partitions):
        holders = {name: each for name, each in held.get(partition, {}).items() if name in nodes}
        wishes.append((-_most_bytes(holders), partition, _in_order(holders, current.get(partition))))
    left = []
    for _, partition, order in sorted(wishes):
        node = next((nodes[name] for name in order if name in nodes and nodes[name].load < nodes[name].most), None)
        if node is None:
            left.append(partition)
        else:
            node.partitions.append(partition)
    return sorted(left)


def _place_rest(nodes: Mapping[str, _Node], partitions: Iterable[int]) -> None:
    """Fill the nodes up to their shares rounded down, then rounded up, then to the most that they may get."""
    for partition in partitions:
        free = (
            [node for node in nodes.values() if node.load < math.floor(node.share)]
            or [node for node in nodes.values() if node.load < math.ceil(node.share)]
            or [node for node in nodes.values() if node.load < node.most]
        )
        max(free, key=lambda node: score(node.seed, partition, node.cores)).partitions.append(partition)


def _raise_to_least(nodes: Mapping[str, _Node], held: Mapping[int, Holders]) -> None:
    """Give nodes below the least what others have above their shares: what is cheapest to move there."""
    for poor in nodes.values():
        while poor.load < poor.least:
            rich = max((node for node in nodes.values() if node is not poor), key=lambda node: node.load - node.share)
            moved = min(rich.partitions, key=lambda partition: _price(partition, rich, poor, held.get(partition, {})))
            rich.partitions.remove(moved)
            poor.partitions.append(moved)


def _price(partition: int, giver: _Node, taker: _Node, holders: Holders) -> tuple[int, float]:
    """Return by how many bytes more is fetched when the partition moves; of equals, what the hash prefers comes first."""
    nothing = Held(0, 0)
    lost = holders.get(giver.name, nothing).size_bytes - holders.get(taker.name, nothing).size_bytes
    return lost, -score(taker.seed, partition, taker.cores)


def _in_order(holders: Holders, current: str | None) -> list[str]:
    """Return the nodes to ask in turn: where it runs, then where it ran last, then whoever has most of the newest version.

    A node that holds next to nothing has read a file or two, and does not hold the state, however new they are.
    """
    enough = _most_bytes(holders) / _NEXT_TO_NOTHING

    def rank(name: str) -> tuple[bool, bool, int, int, int, str]:
        each = holders[name]
        return each.size_bytes < enough, not each.ran_last, -each.version, each.missing_bytes, -each.size_bytes, name

    order = sorted(holders, key=rank)
    return order if current is None else [current, *(name for name in order if name != current)]


def _most_bytes(holders: Holders) -> int:
    return max((each.size_bytes for each in holders.values()), default=0)
