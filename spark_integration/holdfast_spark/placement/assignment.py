"""The assignment of partitions to nodes: each goes to a node that holds its state, newest and most first. Where the node
that worked with a partition is gone, that is its standby. A standby that has its fill of partitions hands one of them on to
that one's own standby, which may have to do the same.

No node gets much more than its share. Pure. A node's share of the partitions is by its cores. It gets at most a quarter
more, rounded to whole partitions, and at least a quarter less: a node that has just come holds nothing, and would get
nothing otherwise. Partitions that nobody holds go by a weighted rendezvous hash of query, partition and node: the same on
every driver and in every run.

All stateful operators of a query are placed together: where two of them are in one stage, one task works on a partition of
both, and could not be on two nodes.
"""

from __future__ import annotations

import math
from collections import deque
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
    ``missing_bytes`` is what a standby lacks of it; None if the node is not its standby.
    """

    version: int
    size_bytes: int
    ran_last: bool = False
    missing_bytes: int | None = None


_NOTHING = Held(0, 0)
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
    _raise_to_least(nodes, held, current or {})
    placed = {partition: node.name for node in nodes.values() for partition in node.partitions}
    return [placed[partition] for partition in range(partitions)]


def places_with_state(holders: Holders, current: str | None) -> list[str]:
    """Return the nodes that can go on with a partition whose executor is lost, the best first: its own, if it has others."""
    enough = max(_most_bytes(holders) / _NEXT_TO_NOTHING, 1)
    return [name for name in _in_order(holders, current) if name == current or holders[name].size_bytes >= enough]


def _place_held(
    nodes: Mapping[str, _Node], partitions: int, held: Mapping[int, Holders], current: Mapping[int, str]
) -> list[int]:
    """Place what runs somewhere, then what somebody holds, the largest first.

    Return the rest, among it what found no room with its holders.
    """
    wishes = []
    for partition in range(partitions):
        holders = {name: each for name, each in held.get(partition, {}).items() if name in nodes}
        order = _in_order(holders, current.get(partition))
        wishes.append((current.get(partition) not in nodes, -_most_bytes(holders), partition, order))
    left, stuck = [], set[str]()
    for _, _, partition, order in sorted(wishes):
        known = [nodes[name] for name in order if name in nodes]
        node = next((node for node in known if node.load < node.most), None)
        finds_all = node is not None and _has_all(held.get(partition, {}), node.name)
        if known and node is not known[0] and not finds_all and _place_by_moves(nodes, partition, held, stuck):
            continue
        if node is None:
            left.append(partition)
        else:
            node.partitions.append(partition)
    return sorted(left)


def _place_by_moves(nodes: Mapping[str, _Node], partition: int, held: Mapping[int, Holders], stuck: set[str]) -> bool:
    """Place a partition at its standby, which is full, if others can move on from there, each to a standby of its own.

    All of them move then, and nothing is fetched. ``stuck`` are nodes from which nothing can move on; more are noted.
    """
    moves = _moves_to(nodes, partition, held, stuck)
    for moved, giver, taker in moves:
        if giver is not None:
            giver.partitions.remove(moved)
        taker.partitions.append(moved)
    return bool(moves)


class _Move(NamedTuple):
    """A partition that goes to another node; ``giver`` is None if it has none yet."""

    partition: int
    giver: _Node | None
    taker: _Node


def _moves_to(nodes: Mapping[str, _Node], partition: int, held: Mapping[int, Holders], stuck: set[str]) -> list[_Move]:
    """Return the fewest moves that bring a partition to a standby, the last of them to a node with room; of equals, small
    partitions. Empty if there are none.

    A node that is full, and from which no such moves lead on, never gets any later: room only becomes less.
    """
    reached: dict[str, _Move] = {}
    ways = deque(_Move(partition, None, node) for node in _standbys(nodes, held.get(partition, {})))
    while ways:
        move = ways.popleft()
        full = move.taker
        if full.name in reached or full.name in stuck:
            continue
        reached[full.name] = move
        if full.load < full.most:
            return _way_to(move, reached)
        for moved in sorted(full.partitions, key=lambda each: (_most_bytes(held.get(each, {})), each)):
            ways.extend(_Move(moved, full, node) for node in _standbys(nodes, held.get(moved, {})) if node is not full)
    stuck.update(reached)
    return []


def _way_to(last: _Move, reached: Mapping[str, _Move]) -> list[_Move]:
    """Return the moves up to the last one, the first one last: so each node has room when it gets something."""
    moves = [last]
    while moves[-1].giver is not None:
        moves.append(reached[moves[-1].giver.name])
    return moves


def _standbys(nodes: Mapping[str, _Node], holders: Holders) -> list[_Node]:
    """Return the nodes with a complete copy."""
    return [nodes[name] for name in sorted(holders) if name in nodes and _has_all(holders, name)]


def _has_all(holders: Holders, name: str) -> bool:
    """Say whether a node is a standby that lacks nothing. One that holds next to nothing is none, whatever it tells."""
    each = holders.get(name, _NOTHING)
    return each.missing_bytes == 0 and each.size_bytes >= _most_bytes(holders) / _NEXT_TO_NOTHING


def _place_rest(nodes: Mapping[str, _Node], partitions: Iterable[int]) -> None:
    """Fill the nodes up to their shares rounded down, then rounded up, then to the most that they may get."""
    for partition in partitions:
        free = (
            [node for node in nodes.values() if node.load < math.floor(node.share)]
            or [node for node in nodes.values() if node.load < math.ceil(node.share)]
            or [node for node in nodes.values() if node.load < node.most]
        )
        max(free, key=lambda node: score(node.seed, partition, node.cores)).partitions.append(partition)


def _raise_to_least(nodes: Mapping[str, _Node], held: Mapping[int, Holders], current: Mapping[int, str]) -> None:
    """Give nodes below the least what others have above their shares: what is cheapest to move there.

    What runs somewhere comes first, as it goes on there until it has been fetched. What has lost its node would wait.
    """
    for poor in nodes.values():
        while poor.load < poor.least:
            rich = max((node for node in nodes.values() if node is not poor), key=lambda node: node.load - node.share)
            prices = {
                partition: _price(partition, rich, poor, held.get(partition, {}), runs=current.get(partition) in nodes)
                for partition in rich.partitions
            }
            moved = min(prices, key=prices.__getitem__)
            rich.partitions.remove(moved)
            poor.partitions.append(moved)


def _price(partition: int, giver: _Node, taker: _Node, holders: Holders, *, runs: bool) -> tuple[bool, int, float]:
    """Return the price of a move: whether the partition waits for it, and by how many bytes more is fetched.

    Of equals, what the hash prefers comes first. ``runs``: it runs on a node that is there.
    """
    here, there = holders.get(giver.name, _NOTHING), holders.get(taker.name, _NOTHING)
    would_wait = not runs and not _has_all(holders, taker.name)
    return would_wait, here.size_bytes - there.size_bytes, -score(taker.seed, partition, taker.cores)


def _in_order(holders: Holders, current: str | None) -> list[str]:
    """Return the nodes to ask in turn: where it runs, then where it ran last, then whoever has most of the newest version.

    A node that holds next to nothing has read a file or two, and does not hold the state, however new they are.
    """
    enough = _most_bytes(holders) / _NEXT_TO_NOTHING

    def rank(name: str) -> tuple[bool, bool, int, int, int, str]:
        each = holders[name]
        missing_bytes = each.missing_bytes or 0
        return each.size_bytes < enough, not each.ran_last, -each.version, missing_bytes, -each.size_bytes, name

    order = sorted(holders, key=rank)
    return order if current is None else [current, *(name for name in order if name != current)]


def _most_bytes(holders: Holders) -> int:
    return max((each.size_bytes for each in holders.values()), default=0)
