"""The files of a state store that a restarted query reads first.

These are the newest snapshot not above the version of the last commit, with the SSTs and logs that it names, and every
change since. In format 2 several attempts may have written a version; then the lineages of all attempts at the last version
decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking, Wanted
from holdfast.checkpoints.formats.spark.manifests import SNAPSHOT
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, parse_spark
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot
from holdfast.checkpoints.formats.spark.state_store import Chain, Store, chain_of
from holdfast.checkpoints.plans import Listed

_SNAPSHOTS = (SparkKind.ZIP, SparkKind.SNAPSHOT)
_SHARED = (SparkKind.SST, SparkKind.ARCHIVED_LOG)


class _File(NamedTuple):
    listed: Listed
    name: SparkName


def state_to_read(location: bytes, files: Sequence[Listed], version: int) -> Asking[list[bytes]]:
    """Return the names of the files of one partition that the query at ``location`` reads, to go on from ``version``."""
    skip = len(location) + 1 if location else 0
    stores: defaultdict[bytes, list[_File]] = defaultdict(list)
    for listed in files:
        name = parse_spark(listed.name[skip:])
        if isinstance(name, SparkName) and name.store is not None:
            stores[name.store.store].append(_File(listed, name))
    needed: list[bytes] = []
    for _, of_store in sorted(stores.items()):
        needed += yield from _of_store(of_store, version)
    return needed


def _of_store(files: Sequence[_File], version: int) -> Asking[list[bytes]]:
    versions = yield from _of_attempts(files, version)
    versions = versions or _of_versions(files, version)
    named = yield from _named(file.listed for file in versions if file.name.kind is SparkKind.ZIP)
    shared = (file.listed.name for file in files if file.name.kind in _SHARED)
    return [file.listed.name for file in versions] + [name for name in shared if named is None or name in named]


def _of_versions(files: Sequence[_File], version: int) -> list[_File]:
    """Choose by the numbers of versions: the newest snapshot and every change since."""
    versions = [(file.name.number, file) for file in files if file.name.number is not None and file.name.number <= version]
    base = max((number for number, file in versions if file.name.kind in _SNAPSHOTS), default=0)
    return [file for number, file in versions if (number == base if file.name.kind in _SNAPSHOTS else number > base)]


def _of_attempts(files: Sequence[_File], version: int) -> Asking[list[_File]]:
    """Choose by lineages, of all attempts at the version; nothing in format 1, or where no lineage is whole."""
    store = Store(b"")
    for file in files:
        store.add(*file)
    newest = {file.name.unique_id for file in files if file.name.number == version and file.name.unique_id is not None}
    chosen: dict[bytes, _File] = {}
    for unique_id in sorted(newest):
        chain = yield from chain_of(store, (version, unique_id))
        if isinstance(chain, Chain):
            chosen.update({file.listed.name: file for file in files if _is_in(file.name, chain)})
    return list(chosen.values())


def _is_in(name: SparkName, chain: Chain) -> bool:
    if name.number is None or name.unique_id is None or (name.number, name.unique_id) not in chain.attempts:
        return False
    return (name.number == chain.base) == (name.kind in _SNAPSHOTS)


def _named(zips: Iterable[Listed]) -> Asking[set[bytes] | None]:
    """Return the names of the files in these snapshots; None when one can't be read: then any file may be one of them."""
    wanted = [Wanted(listed.name, SNAPSHOT, listed.size_bytes) for listed in zips]
    answers = yield wanted
    found: set[bytes] = set()
    for each in wanted:
        snapshot = answers[each.name]
        if not isinstance(snapshot, SparkSnapshot):
            return None
        directory = each.name.rpartition(b"/")[0]
        found.update(b"%s/%s" % (directory, file.name) for file in snapshot.files)
    return found
