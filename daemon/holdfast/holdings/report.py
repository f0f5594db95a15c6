"""The object in which a node tells what it holds: its format, and what is refused of one that somebody else has written.

Gzip over JSON, one object a node in each store: ``.holdfast/nodes/<node>.<part of the store directory's id>``. Whoever may
write to a bucket may put anything there; so sizes, counts, numbers and names have bounds, and what is beyond them is no
report. A report can be wrong, and then costs fetches; nothing in it is ever executed, opened or shown without escapes.

Versions of Holdfast run side by side while nodes are upgraded one after the other. So a reader ignores fields of objects,
and further elements of arrays, that it does not know, and what it misses in an older report has a default.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated, NamedTuple

import msgspec

from holdfast.checkpoints.formats.interface import StateStore
from holdfast.config import HOST_NAME, MOST_STANDBYS, NODE_NAME
from holdfast.holdings.held_stores import HeldStore, Place

FORMAT = 1
"""The format. Another one is refused: it is raised for what an earlier reader would misunderstand, and for nothing else."""
REVISION = 1
"""The number of the last addition to the format. A reader ignores additions that it does not know."""
DIRECTORY = "nodes"
"""The directory of the reports, below ``.holdfast/``."""
LARGEST_BYTES = 2 * 2**20
"""The size limit of a report as it is in the store. 50,000 state stores take 0.5 MB."""
_LARGEST_TEXT_BYTES = 4 * 2**20
"""The limit of a report's JSON, which is never unpacked further: 50,000 state stores take 3 MB."""
_MOST_HELD_TEXT_BYTES = LARGEST_BYTES - 2**18
"""The limit of the JSON of what this node reports as held: with the rest it fits the store, however badly it compresses."""
_MOST_STORES = 50_000
"""The limit of state stores in a report. A node holds some thousand."""
_LONGEST_LOCATION, _LONGEST_NAME = 4096, 255
MOST_PROBLEMS, LONGEST_PROBLEM = 16, 512
_GZIP = 31  # zlib's number for a gzip header
_LONG, _INT = 2**63 - 1, 2**31 - 1  # Java's
_Number = Annotated[int, msgspec.Meta(ge=0, le=_LONG)]
_Int = Annotated[int, msgspec.Meta(ge=0, le=_INT)]
_Text = Annotated[str, msgspec.Meta(max_length=_LONGEST_LOCATION)]
_StoreName = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_NAME)]


class StoreState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of one state store that a node holds: operator, partition, the store's name, the newest version, bytes.

    ``is_copy``: its newest version was only fetched, so another node works with it. ``missing_bytes`` is what a standby has
    yet to fetch of what the newest checkpoint needs, over all stores of the partition; None if the node is not its standby.
    Reports of earlier versions end before these two.
    """

    operator: _Int
    partition: _Int
    store: _StoreName
    version: _Number
    size_bytes: _Number
    is_copy: bool = False
    missing_bytes: _Number | None = None


class QueryState(msgspec.Struct, frozen=True):
    """The state that a node holds of the query at ``location``, relative to the store."""

    location: _Text
    stores: Annotated[list[StoreState], msgspec.Meta(max_length=_MOST_STORES)]


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a node: version, mode of data, bytes, and a sentence for each thing that is wrong."""

    version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    data_mode: Annotated[str, msgspec.Meta(max_length=64)] = ""
    cached_bytes: _Number = 0
    free_bytes: _Number = 0
    problems: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=LONGEST_PROBLEM)]], msgspec.Meta(max_length=MOST_PROBLEMS)
    ] = []


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's report of what it holds of one store. ``hosts`` are the names and addresses by which others know the node.

    ``revision`` is the newest addition to the format that its writer knows, 0 before they were counted. ``cores`` is the
    number of its cores, ``rack`` the name of what fails together with it ("": not known), ``standbys`` the number of standby
    copies for which it is configured (0: it keeps none). In reports of revision 0 ``health``, ``rack`` and ``standbys`` may
    be missing.
    """

    format: int = FORMAT
    revision: Annotated[int, msgspec.Meta(ge=0, le=_INT)] = 0
    node: Annotated[str, msgspec.Meta(max_length=128)]
    hosts: Annotated[list[Annotated[str, msgspec.Meta(pattern=HOST_NAME)]], msgspec.Meta(max_length=64)] = []
    cores: Annotated[int, msgspec.Meta(ge=0, le=65_536)] = 0
    is_draining: bool = False
    rack: Annotated[str, msgspec.Meta(pattern=NODE_NAME)] = ""
    standbys: Annotated[int, msgspec.Meta(ge=0, le=MOST_STANDBYS)] = 0
    health: NodeHealth | None = None
    queries: Annotated[list[QueryState], msgspec.Meta(max_length=_MOST_STORES)] = []


_decode = msgspec.json.Decoder(NodeReport).decode


class BadReportError(Exception):
    """The object is not a valid report."""


class Partition(NamedTuple):
    """A partition of the query at ``location``, relative to the store: all stores of all its operators."""

    location: str
    number: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The work of a node as a standby in one store, as its report tells it.

    ``copies`` is the number of standby copies that are configured, ``missing_bytes`` what is still to be fetched of the
    partitions that it stands by for.
    """

    copies: int = 0
    missing_bytes: Mapping[Partition, int] = field(default_factory=dict)


NOT_STANDING_BY = Standing()


class Held(NamedTuple):
    """The state held of one zone, as a report has it; ``dropped`` is the number of stores that a report can't have."""

    queries: list[QueryState]
    dropped: int


def is_node_name(name: str) -> bool:
    """Say whether ``name`` can be the name of a node, which becomes a part of a key."""
    return bool(name) and re.search(NODE_NAME, name) is not None


def is_host(name: str) -> bool:
    """Say whether ``name`` can be the name or an address of a host."""
    return re.search(HOST_NAME, name) is not None


def held_of(
    held: Mapping[Place, HeldStore],
    zone: str,
    standing: Standing = NOT_STANDING_BY,
    most: int = _MOST_STORES,
    most_bytes: int = _MOST_HELD_TEXT_BYTES,
) -> Held:
    """Return what is held of ``zone``, by location; of more than ``most`` stores, or ``most_bytes`` of JSON, the largest.

    What a reader would refuse is left out, as it would refuse the rest of the report too.
    """
    of_zone = [(place.store, each) for place, each in held.items() if place.zone == zone]
    states = [(store, state) for store, each in of_zone if (state := _state(store, each, standing)) is not None]
    states.sort(key=lambda pair: (-pair[1].size_bytes, pair[0]))
    kept = states[: min(most, _number_within(states, most_bytes))]
    by_location: dict[bytes, list[StoreState]] = {}
    for store, state in sorted(kept, key=itemgetter(0)):
        by_location.setdefault(store.location, []).append(state)
    queries = [QueryState(location.decode(), stores) for location, stores in by_location.items()]
    return Held(queries, len(of_zone) - len(kept))


def _number_within(states: Iterable[tuple[StateStore, StoreState]], most_bytes: int) -> int:
    """Return how many of ``states``, from the first on, have a JSON of at most ``most_bytes``, separators included."""
    locations: set[bytes] = set()
    number = total_bytes = 0
    for store, state in states:
        total_bytes += len(msgspec.json.encode(state)) + 1
        if store.location not in locations:
            locations.add(store.location)
            total_bytes += len(msgspec.json.encode(QueryState(store.location.decode(), []))) + 1
        if total_bytes > most_bytes:
            break
        number += 1
    return number


def encoded(report: NodeReport) -> bytes:
    """Return the object's bytes: the same for the same report."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return compressor.compress(msgspec.json.encode(report)) + compressor.flush()


def decoded(data: bytes) -> NodeReport:
    """Read what ``encoded`` or a stranger wrote. Raises ``BadReportError``."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(data, _LARGEST_TEXT_BYTES)
        if not unpacker.eof:
            raise BadReportError("it is cut short, or larger than a report can be")
        report = _decode(text)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise BadReportError(str(problem)) from None
    if report.format != FORMAT:
        raise BadReportError(f"its format is {report.format}, this Holdfast reads {FORMAT}")
    if not is_node_name(report.node):
        raise BadReportError("its node has no proper name")
    _check_queries(report.queries)
    return report


def _check_queries(queries: Collection[QueryState]) -> None:
    if sum(len(query.stores) for query in queries) > _MOST_STORES:
        raise BadReportError("it has more stores than a node can hold")
    if len({query.location for query in queries}) < len(queries):
        raise BadReportError("it names a query twice")
    for query in queries:
        if not _is_location(query.location) or not all(_is_store_name(state.store) for state in query.stores):
            raise BadReportError("it names what can't be in a store")
        if len({(state.operator, state.partition, state.store) for state in query.stores}) < len(query.stores):
            raise BadReportError("it names a store twice")


def _is_location(text: str) -> bool:
    parts = text.split("/") if text else []
    return len(text) <= _LONGEST_LOCATION and all(part not in ("", ".", "..") and _is_plain(part) for part in parts)


def _is_store_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and "/" not in text and _is_plain(text)


def _is_plain(text: str) -> bool:
    return not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or 0xD800 <= ord(letter) < 0xE000 for letter in text)


def _state(store: StateStore, held: HeldStore, standing: Standing) -> StoreState | None:
    try:
        name = store.name.decode()
        location = store.location.decode()
    except UnicodeDecodeError:
        return None
    if max(store.operator, store.partition) > _INT or max(held.version, held.size_bytes) > _LONG:
        return None
    if not _is_store_name(name) or not _is_location(location):
        return None
    is_copy = held.own_version < held.version
    missing_bytes = standing.missing_bytes.get(Partition(location, store.partition)) if is_copy else None
    return StoreState(store.operator, store.partition, name, held.version, held.size_bytes, is_copy, missing_bytes)
