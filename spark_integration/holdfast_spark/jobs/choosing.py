"""Which files of a state store a restarted query reads first: what executors choose for a warm-up.

That is the newest snapshot not above the version of the last commit, with the SSTs and logs that it names, and every change
since. In format 2 several attempts may have written a version: there the lineages tell, of all attempts at the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.checkpoints.layouts import SparkKind
from holdfast.checkpoints.manifests import ManifestKind, SparkSnapshot
from holdfast.checkpoints.reachability import Examination, Listed, Wanted
from holdfast.checkpoints.reachability.spark_store import Chain, Store, chain_of
from holdfast_spark.forms import PLACED, Form
from holdfast_spark.jobs.naming import name_below
from holdfast_spark.jobs.reading import Read, reader_below
from holdfast_spark.stores import StoreAddress

STATE = PLACED.with_columns(
    operator="bigint", partition="bigint", store="string", kind="string", number="bigint", unique_id="string"
)
"""What a name below a checkpoint location says; of a commit there is only the number."""

UNIT = Form(location="string", operator="bigint", partition="bigint", version="bigint", name="string", size_bytes="bigint")
"""A file that the state of one partition needs, to go on from ``version``."""

_SNAPSHOTS = (SparkKind.ZIP.value, SparkKind.SNAPSHOT.value)
_SHARED = (SparkKind.SST.value, SparkKind.ARCHIVED_LOG.value)


class File(NamedTuple):
    """A row of ``STATE`` with the version to go on from."""

    location: str
    name: str
    size_bytes: int
    operator: int
    partition: int
    store: str
    kind: str
    number: int | None
    unique_id: str | None
    version: int


def state_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Read the names below checkpoint locations (``PLACED`` in, ``STATE`` out); only state and commits."""
    for batch in batches:
        yield from STATE.batches(row for row in map(_state, PLACED.rows(batch)) if row is not None)


class Chooser:
    """Chooses what one partition of one operator needs. Travels to executors."""

    def __init__(self, address: StoreAddress, root: str) -> None:
        self._address = address
        self._root = root

    def choose(self, table: Any) -> Any:
        """Choose from one partition's files (``STATE`` with ``version`` in, ``UNIT`` out)."""
        files = [File(*row) for row in STATE.with_columns(version="bigint").rows(table)]
        read = reader_below(self._address, self._root)
        stores = [[file for file in files if file.store == each] for each in sorted({file.store for file in files})]
        return UNIT.table(
            (file.location, file.operator, file.partition, file.version, file.name, file.size_bytes)
            for of_store in stores
            for file in _needed(of_store, read)
        )


def _needed(files: Sequence[File], read: Read) -> Iterator[File]:
    """Choose from one store's files."""
    versions = _of_attempts(files, read) or _of_versions(files)
    yield from versions
    named = _named((file for file in versions if file.kind == SparkKind.ZIP.value), read)
    yield from (file for file in files if file.kind in _SHARED and (named is None or file.name in named))


def _of_versions(files: Sequence[File]) -> list[File]:
    """Choose by the numbers of versions: the newest snapshot and every change since."""
    versions = [(file.number, file) for file in files if file.number is not None and file.number <= file.version]
    base = max((number for number, file in versions if file.kind in _SNAPSHOTS), default=0)
    return [file for number, file in versions if (number == base if file.kind in _SNAPSHOTS else number > base)]


def _of_attempts(files: Sequence[File], read: Read) -> list[File]:
    """Choose by lineages, of all attempts at the version; nothing in format 1, or where no lineage is whole."""
    store = Store(b"")
    for file in files:
        name = name_below(file.location, file.name)
        if name is not None:
            store.add(Listed(file.name.encode(), file.size_bytes, 0), name)
    newest = {(file.version, file.unique_id) for file in files if file.number == file.version and file.unique_id is not None}
    chosen: dict[str, File] = {}
    for version, unique_id in sorted(newest):
        examination = Examination(chain_of(store, (version, unique_id.encode())))
        while wanted := examination.wanted:
            examination.supply({each.name: read(each) for each in wanted})
        chain = examination.result
        if isinstance(chain, Chain):
            chosen.update({file.name: file for file in files if _is_in(file, chain)})
    return list(chosen.values())


def _is_in(file: File, chain: Chain) -> bool:
    if file.number is None or file.unique_id is None or (file.number, file.unique_id.encode()) not in chain.attempts:
        return False
    return (file.number == chain.base) == (file.kind in _SNAPSHOTS)


def _named(zips: Iterable[File], read: Read) -> set[str] | None:
    """Return the names of what these snapshots consist of; None when one of them can't be read: then all may be."""
    found: set[str] = set()
    for each in zips:
        snapshot = read(Wanted(each.name.encode(), ManifestKind.SPARK_SNAPSHOT, each.size_bytes))
        if not isinstance(snapshot, SparkSnapshot):
            return None
        directory = each.name.rpartition("/")[0]
        found.update(f"{directory}/{file.name.decode()}" for file in snapshot.files)
    return found


def _state(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    location, name, _ = row
    parsed = name_below(location, name)
    if parsed is None or parsed.layers:
        return None
    if parsed.kind is SparkKind.COMMIT:
        return *row, None, None, None, parsed.kind.value, parsed.number, None
    if parsed.store is None or parsed.kind is SparkKind.STATE_SCHEMA:
        return None
    place, unique_id = parsed.store, parsed.unique_id.decode() if parsed.unique_id is not None else None
    return *row, place.operator, place.partition, place.store.decode(), parsed.kind.value, parsed.number, unique_id
