"""Which files of a state store a restarted query reads first: what executors choose for a warm-up.

That is the newest snapshot not above the version of the last commit, with the SSTs and logs that it names, and every change
since. In format 2 several attempts may have written a version: all of the last ones are taken, which costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast.checkpoints.hooks.streams import read_object
from holdfast.checkpoints.layouts import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.manifests import ManifestKind, SparkSnapshot
from holdfast.checkpoints.reachability import Wanted
from holdfast_spark.forms import Form
from holdfast_spark.stores import RemoteStore, StoreAddress, patiently

PLACED = Form(location="string", name="string", size_bytes="bigint")
STATE = PLACED.with_columns(operator="bigint", partition="bigint", store="string", kind="string", number="bigint")
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
        store = self._address.open()
        stores = {file.store for file in files}
        chosen = (one for each in sorted(stores) for one in self._of_store(store, [f for f in files if f.store == each]))
        return UNIT.table(
            (file.location, file.operator, file.partition, file.version, file.name, file.size_bytes) for file in chosen
        )

    def _of_store(self, store: RemoteStore, files: Sequence[File]) -> Iterator[File]:
        versions = [(file.number, file) for file in files if file.number is not None and file.number <= file.version]
        base = max((number for number, file in versions if file.kind in _SNAPSHOTS), default=0)
        needed = [file for number, file in versions if (number == base if file.kind in _SNAPSHOTS else number > base)]
        yield from needed
        zips = [file for file in needed if file.kind == SparkKind.ZIP.value]
        named = self._named(store, zips)
        yield from (file for file in files if file.kind in _SHARED and (named is None or file.name in named))

    def _named(self, store: RemoteStore, zips: Iterable[File]) -> set[str] | None:
        """Return the names of what these snapshots consist of; None when one of them can't be read: then all may be."""
        prefix = f"{self._root}/" if self._root else ""
        found: set[str] = set()
        for each in zips:
            wanted = Wanted(each.name.encode(), ManifestKind.SPARK_SNAPSHOT, each.size_bytes)
            snapshot = patiently(partial(read_object, store, prefix + each.name, wanted))
            if not isinstance(snapshot, SparkSnapshot):
                return None
            directory = each.name.rpartition("/")[0]
            found.update(f"{directory}/{file.name.decode()}" for file in snapshot.files)
        return found


def _state(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    location, name, _ = row
    parsed = parse_spark(name[len(location) + 1 if location else 0 :].encode())
    if not isinstance(parsed, SparkName) or parsed.layers:
        return None
    if parsed.kind is SparkKind.COMMIT:
        return *row, None, None, None, parsed.kind.value, parsed.number
    if parsed.store is None or parsed.kind is SparkKind.STATE_SCHEMA:
        return None
    place = parsed.store
    return *row, place.operator, place.partition, place.store.decode(), parsed.kind.value, parsed.number
