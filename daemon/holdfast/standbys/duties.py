"""The duties of this node as a standby, worked out from the reports of the nodes: pure.

Nobody leads, so every node comes to the same answer from the same reports; while their reports differ, a copy more or less
is fetched. A report may be wrong or planted: versions that no checkpoint can have reached make nobody a holder, and a node
that has been silent gets no copies. All that a wrong report can cost is a copy, or fetches where one would have helped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.holdings.report import NodeReport, Partition
from holdfast.standbys.assignment import Fleet, Node, QueryAssignment
from holdfast.standbys.moved_on import Expected
from holdfast.system.partition_holder import Claim, holder_of_partition

_VERSIONS_AHEAD = 1000
"""The number of versions by which a report may be ahead of the newest commit that this node has seen."""
_MOST_OPERATORS = 64
"""The limit of stateful operators of one query; more are made up, and each costs its standbys a request."""

NOTHING_EXPECTED = Expected()


class Reporter(NamedTuple):
    """A node with its report of one store. ``name`` is unique; ``is_silent``: it has told nothing for too long."""

    name: str
    report: NodeReport
    is_silent: bool = False


class Portion(NamedTuple):
    """The part of a partition that one node holds, over all its stores.

    ``own_version`` is the newest version that the node has worked with (0: none). ``missing_bytes`` is what it has yet to
    fetch as a standby; None if it is not the partition's standby.
    """

    own_version: int
    size_bytes: int
    missing_bytes: int | None


@dataclass(slots=True)
class _Known:
    """A partition as the reports tell it: by node, the operators with state there, and the portion."""

    operators: dict[str, set[int]] = field(default_factory=dict)
    portions: dict[str, Portion] = field(default_factory=dict)

    def operators_of(self, node: str) -> frozenset[int]:
        """Return the operators that a node has state of: the first ones if it tells more than any query has."""
        return frozenset(sorted(self.operators.get(node, ()))[:_MOST_OPERATORS])


@dataclass(frozen=True, slots=True)
class Duties:
    """The duties of this node. ``stands_by`` has the operators of each partition that it keeps a copy of.

    ``uncovered`` are the partitions that run here, and of which no standby has told a complete copy.
    """

    stands_by: Mapping[Partition, frozenset[int]] = field(default_factory=dict)
    uncovered: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nodes that ``me`` knows of, itself among them. ``candidates`` are those that may keep copies of what one holds."""

    me: str
    reporters: Sequence[Reporter]
    candidates: Callable[[str], Collection[str]]


def duties_of(
    neighbours: Neighbours,
    copies: Mapping[str, int],
    default_copies: int,
    newest: Mapping[str, int],
    expected: Expected = NOTHING_EXPECTED,
) -> Duties:
    """Return the duties of the node that ``neighbours`` are about.

    ``copies`` is the number of standby copies of queries that have one of their own, by location; the others have
    ``default_copies``. ``newest`` is the newest committed version of each query, as far as this node has looked for it;
    ``expected`` says which nodes no longer work with one.
    """
    me, stands_by, uncovered = neighbours.me, dict[Partition, frozenset[int]](), set[Partition]()
    queries: dict[str, _Query] = {}
    for partition, known, holder in _holders(neighbours, newest, expected):
        location, number = partition
        if holder is None and location in expected.going_on:
            continue  # it runs on a node that is no neighbour, and whose neighbours keep its copies
        if location not in queries:
            queries[location] = _Query(neighbours, location, copies.get(location, default_copies))
        query = queries[location]
        if query.stands_by(number, holder, known.portions.get(me)):
            stands_by[partition] = known.operators_of(holder or me)
        elif holder == me and not query.is_covered(number, known.portions):
            uncovered.add(partition)
    return Duties(stands_by, frozenset(uncovered))


def held_by_nodes(
    neighbours: Neighbours, newest: Mapping[str, int], expected: Expected = NOTHING_EXPECTED
) -> Mapping[str, int]:
    """Return the number of partitions that each node holds, by name."""
    return Counter(holder for _, _, holder in _holders(neighbours, newest, expected) if holder is not None)


def _holders(
    neighbours: Neighbours, newest: Mapping[str, int], expected: Expected
) -> Iterator[tuple[Partition, _Known, str | None]]:
    """Yield each partition, what is known of it, and its holder; None if it has none among the neighbours."""
    nodes = {reporter.name: reporter.report.node for reporter in neighbours.reporters}
    for location, partitions in _by_location(neighbours.reporters).items():
        most = _most_version(newest.get(location, 0), _mine(partitions, neighbours.me))
        for number, known in partitions.items():
            claims = {
                name: Claim(each.own_version, each.size_bytes, nodes[name])
                for name, each in known.portions.items()
                if not expected.is_behind(name, location, each.own_version) and (most is None or each.own_version <= most)
            }
            yield Partition(location, number), known, holder_of_partition(claims)


def doubtful(neighbours: Neighbours, newest: Mapping[str, int]) -> set[str]:
    """Return the queries of which somebody tells a version that is not believed: what this node knows may be old."""
    return {
        location
        for location, partitions in _by_location(neighbours.reporters).items()
        if _is_doubtful(partitions, _most_version(newest.get(location, 0), _mine(partitions, neighbours.me)))
    }


def _is_doubtful(partitions: Mapping[int, _Known], most: int | None) -> bool:
    told = (portion.own_version for known in partitions.values() for portion in known.portions.values())
    return most is not None and any(version > most for version in told)


class _Query:
    """The assignment of one query's copies, by the holder of each partition."""

    def __init__(self, neighbours: Neighbours, location: str, copies: int) -> None:
        self._neighbours = neighbours
        self._location = location
        self._copies = copies
        self._of_holders: dict[str, QueryAssignment] = {}

    def stands_by(self, number: int, holder: str | None, mine: Portion | None) -> bool:
        """Say whether this node stands by for a partition. As long as nobody knows its holder, a standby remains one."""
        if holder is None:
            return mine is not None and mine.missing_bytes is not None
        return self._of(holder).stands_by(self._neighbours.me, number, holder)

    def is_covered(self, number: int, portions: Mapping[str, Portion]) -> bool:
        """Say whether a partition that runs on this node is complete on one of its standbys."""
        standbys = self._of(self._neighbours.me).standbys(number, self._neighbours.me)
        return any(name in portions and portions[name].missing_bytes == 0 for name in standbys)

    def _of(self, holder: str) -> QueryAssignment:
        found = self._of_holders.get(holder)
        if found is None:
            known = {*self._neighbours.candidates(holder), holder}
            nodes = [_node(each) for each in self._neighbours.reporters if each.name in known]
            found = self._of_holders[holder] = Fleet(nodes, self._copies).query(self._location)
        return found


def portions_of(report: NodeReport) -> Iterator[tuple[Partition, int, Portion]]:
    """Yield what a report tells of each store: its partition, its operator, and the portion that this one store is."""
    for query in report.queries:
        for state in query.stores:
            own_version = 0 if state.is_copy else state.version
            portion = Portion(own_version, state.size_bytes, state.missing_bytes if state.is_copy else None)
            yield Partition(query.location, state.partition), state.operator, portion


def merged(one: Portion | None, other: Portion) -> Portion:
    """Return two portions of one node and one partition together."""
    if one is None:
        return other
    told = [each.missing_bytes for each in (one, other) if each.missing_bytes is not None]
    return Portion(max(one.own_version, other.own_version), one.size_bytes + other.size_bytes, max(told) if told else None)


def _by_location(reporters: Sequence[Reporter]) -> dict[str, dict[int, _Known]]:
    found: dict[str, dict[int, _Known]] = {}
    for reporter in reporters:
        for partition, operator, portion in portions_of(reporter.report):
            known = found.setdefault(partition.location, {}).setdefault(partition.number, _Known())
            known.operators.setdefault(reporter.name, set()).add(operator)
            known.portions[reporter.name] = merged(known.portions.get(reporter.name), portion)
    return found


def _mine(partitions: Mapping[int, _Known], me: str) -> Iterator[int]:
    """Yield the versions that this node has worked with."""
    return (known.portions[me].own_version for known in partitions.values() if me in known.portions)


def _most_version(newest: int, mine: Iterable[int]) -> int | None:
    """Return the newest version that is believed of a query; None if this node knows nothing of it itself."""
    known = max([newest, *mine])
    return known + _VERSIONS_AHEAD if known else None


def _node(reporter: Reporter) -> Node:
    report = reporter.report
    takes_copies = report.standbys > 0 and not report.is_draining and not reporter.is_silent
    return Node(reporter.name, float(report.cores or 1), report.rack or f"host {report.node}", takes_copies)
