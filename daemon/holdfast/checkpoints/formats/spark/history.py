"""A query taken back to an earlier batch, or copied as it was after one.

What later batches have left has to go: their offsets and commits, and their state. In format 1 a later version of the state
has the name that the new history will use, and a snapshot of the old one would be taken for the new one's. Logs of sources
stay: what a source had seen comes in the next batch. So do files that versions share; a sweep finds those that nothing names
any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.checkpoints.examination import Asking, Wanted
from holdfast.checkpoints.formats.interface import Copied
from holdfast.checkpoints.formats.spark.manifests import OPERATOR_METADATA
from holdfast.checkpoints.formats.spark.names import STATE_OF_A_VERSION, SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.query import SET_ASIDE
from holdfast.checkpoints.formats.spark.small_files import OperatorStores, with_schema_files
from holdfast.checkpoints.formats.spark.wrapping import Layer
from holdfast.checkpoints.manifests import BrokenError
from holdfast.checkpoints.plans import Listed
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.system.text import shown

_METADATA = b"metadata"


def later(location: bytes, listing: Iterable[Listed], batch: int) -> list[list[Listed]]:
    """Return what batches after ``batch`` have left, in steps: state, then each log entry by itself, the newest first.

    A batch that has lost its state can't be run again from there: Spark refuses to start. So a restart in between never goes
    on from something that never was. Raises ``PlanError`` when there is no such batch.
    """
    state: list[Listed] = []
    logs: list[tuple[int, bool, Listed]] = []
    batches: set[int] = set()
    for listed, name in _named(location, listing):
        if name.kind in (SparkKind.COMMIT, SparkKind.OFFSETS) and name.number is not None and not name.layers:
            batches.add(name.number)
        if name.is_temporary or not _is_later(name, batch):
            continue
        if name.kind in (SparkKind.COMMIT, SparkKind.OFFSETS):
            logs.append((name.number or 0, name.kind is SparkKind.COMMIT, listed))
        else:
            state.append(listed)
    if batch not in batches:
        raise NoSuchPlanError(f"there is no batch {batch}: neither commits/{batch} nor offsets/{batch}")
    return [state, *([listed] for *_, listed in sorted(logs, key=lambda each: each[:2], reverse=True))]


def copied(location: bytes, listing: Iterable[Listed], batch: int) -> Asking[Copied]:
    """Return what a copy takes. Operators that name their schemas by absolute paths get the copy's paths."""
    listing = list(listing)
    gone = {listed.name for step in later(location, listing, batch) for listed in step}
    entry = _below(location, _METADATA)
    aside = _below(location, SET_ASIDE) + b"/"
    taken = [
        listed
        for listed in listing
        if not (listed.is_directory or listed.name in gone or listed.name == entry or listed.name.startswith(aside))
    ]
    named = dict(_named(location, taken))
    taken = [listed for listed in taken if not (listed in named and _stays_behind(named[listed]))]
    metadata = [listed for listed in taken if listed in named and named[listed].kind is SparkKind.OPERATOR_METADATA]
    answers = yield [Wanted(listed.name, OPERATOR_METADATA, listed.size_bytes) for listed in metadata]
    operators = [(listed, answers[listed.name]) for listed in metadata]
    rewritten = [listed for listed, each in operators if isinstance(each, OperatorStores) and each.schema_files]
    return Copied([listed for listed in taken if listed not in rewritten], rewritten)


def moved_metadata(content: bytes, source: bytes, target: bytes) -> bytes:
    """Return an operator's metadata with the schemas of the copy at ``target``. Raises ``PlanError`` if it names others'."""

    def moved(path: str) -> str:
        place, state, below = path.rpartition("/state/")
        if not f"/{place}".endswith(f"/{source.decode()}"):
            raise PlanError(
                f"an operator names {shown(path.encode())}, which is not in this checkpoint: no copy can read it"
            )
        return place.removesuffix(source.decode()) + target.decode() + state + below

    try:
        return with_schema_files(content, moved)
    except BrokenError as broken:
        raise PlanError(f"an operator's metadata: {broken.result}") from None


def new_metadata(content: bytes, new_id: str) -> bytes:
    """Return a query's metadata with another id. Raises ``PlanError`` when ``content`` is none."""
    try:
        found = msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise PlanError(f"metadata: {problem}") from None
    return msgspec.json.encode({**found, "id": new_id})


def _named(location: bytes, listing: Iterable[Listed]) -> Iterator[tuple[Listed, SparkName]]:
    skip = len(location) + 1 if location else 0
    for listed in listing:
        name = parse_spark(listed.name[skip:])
        if isinstance(name, SparkName) and not listed.is_directory:
            yield listed, name


def _is_later(name: SparkName, batch: int) -> bool:
    if name.number is None:
        return False
    if name.kind in STATE_OF_A_VERSION:
        return name.number > batch + 1
    return name.kind in (SparkKind.COMMIT, SparkKind.OFFSETS, SparkKind.OPERATOR_METADATA) and name.number > batch


def _stays_behind(name: SparkName) -> bool:
    """Return whether a copy leaves a file out, as it does temporary files and Hadoop's checksums.

    The checksum of ``metadata`` would be wrong in the copy, and Hadoop makes the others anew.
    """
    return name.is_temporary or Layer.SIDECAR in name.layers


def _below(location: bytes, name: bytes) -> bytes:
    return b"%s/%s" % (location, name) if location else name
