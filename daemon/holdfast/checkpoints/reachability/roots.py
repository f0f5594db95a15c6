"""Whose each name of a listing is: a Spark query's, Flink's, Holdfast's own, or nobody's that is known.

A checkpoint location of Spark shows by ``metadata`` beside ``offsets/<n>`` or ``commits/<n>``. What lies in none is looked
at as Flink's; there a file counts only inside a directory that shows to be a job's.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.checkpoints.layouts import FlinkName, SparkKind, SparkName, parse_flink, parse_flink_directory, parse_spark
from holdfast.checkpoints.reachability.flink_tree import Tree
from holdfast.checkpoints.reachability.plan import Listed
from holdfast.checkpoints.reachability.spark_query import Query

_LOG_ENTRY = re.compile(rb"(?:(?P<location>.*)/)?(?:offsets|commits)/[0-9]+", re.DOTALL)
_STAGED = re.compile(rb"\.holdfast/(?:[0-9a-f]{32}|sweep-[0-9]+)")
"""Objects on their way, and the claims of those who led past sweeps."""


class Evidence(NamedTuple):
    """What a name says of ``location``, which is one of Spark's if it has both: ``metadata`` and an entry of a log."""

    location: bytes
    is_metadata: bool


class Part(enum.Enum):
    """Whose a name outside Spark's checkpoint locations is."""

    STAGED = "staged"
    FLINK = "flink"
    SINK_LOG = "sink log"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Roots:
    """A listing, sorted by whose each name is."""

    queries: dict[bytes, Query] = field(default_factory=dict)
    flink: Tree = field(default_factory=Tree)
    sink_logs: list[tuple[Listed, SparkName]] = field(default_factory=list)
    staged: list[Listed] = field(default_factory=list)
    unknown: list[Listed] = field(default_factory=list)


def sorted_by_root(listing: Iterable[Listed]) -> Roots:
    """Sort a listing."""
    listing = list(listing)
    roots = Roots({location: Query(location) for location in _locations(listing)})
    above = _Above(roots.queries)
    for listed in listing:
        query = above.query(listed.name.rpartition(b"/")[0])
        if query is not None:
            _add_to_query(listed, query, roots)
        else:
            _add(listed, roots)
    return roots


def evidence_of(listed: Listed) -> Evidence | None:
    """Say which directory ``listed`` makes a checkpoint location of Spark's, if any."""
    directory, _, last = listed.name.rpartition(b"/")
    if last == b"metadata" and not listed.is_directory:
        return Evidence(directory, is_metadata=True)
    match = _LOG_ENTRY.fullmatch(listed.name)
    return Evidence(match["location"] or b"", is_metadata=False) if match else None


def _locations(listing: Iterable[Listed]) -> set[bytes]:
    evidence = [found for found in map(evidence_of, listing) if found is not None]
    with_metadata = {found.location for found in evidence if found.is_metadata}
    return with_metadata & {found.location for found in evidence if not found.is_metadata}


class _Above:
    """Finds the innermost checkpoint location above a directory, each directory once."""

    def __init__(self, queries: dict[bytes, Query]) -> None:
        self._found: dict[bytes, Query | None] = dict(queries)
        self._found.setdefault(b"", None)

    def query(self, directory: bytes) -> Query | None:
        passed = []
        while directory not in self._found:
            passed.append(directory)
            directory = directory.rpartition(b"/")[0]
        query = self._found[directory]
        self._found.update(dict.fromkeys(passed, query))
        return query


def query_of(location: bytes, listing: Iterable[Listed]) -> Query:
    """Return the query at ``location``, of what belongs to it and to no location within it."""
    roots = Roots({location: Query(location)})
    for listed in listing:
        _add_to_query(listed, roots.queries[location], roots)
    return roots.queries[location]


def _add_to_query(listed: Listed, query: Query, roots: Roots) -> None:
    name = parse_spark(listed.name[len(query.location) + 1 :] if query.location else listed.name)
    if isinstance(name, SparkName) and not listed.is_directory:
        query.add(listed, name)
    else:
        roots.unknown.append(listed)


def part_of(listed: Listed) -> tuple[Part, FlinkName | SparkName | None]:
    """Say whose ``listed``, which lies in no checkpoint location of Spark's, is, and what its name says."""
    if _STAGED.fullmatch(listed.name) and not listed.is_directory:
        return Part.STAGED, None
    flink = parse_flink_directory(listed.name) if listed.is_directory else parse_flink(listed.name)
    if isinstance(flink, FlinkName):
        return Part.FLINK, flink
    spark = parse_spark(listed.name)
    if isinstance(spark, SparkName) and spark.kind is SparkKind.SINK_LOG and not listed.is_directory:
        return Part.SINK_LOG, spark
    return Part.UNKNOWN, None


def _add(listed: Listed, roots: Roots) -> None:
    part, name = part_of(listed)
    if isinstance(name, FlinkName):
        roots.flink.add(listed, name)
    elif isinstance(name, SparkName):
        roots.sink_logs.append((listed, name))
    else:
        (roots.staged if part is Part.STAGED else roots.unknown).append(listed)
