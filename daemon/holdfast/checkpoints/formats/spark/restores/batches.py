"""The files that a restart reads, put together for each retained batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from holdfast.checkpoints.examination import Asking, together
from holdfast.checkpoints.formats.interface import EngineVersion, Restore
from holdfast.checkpoints.formats.spark.batch_log import SparkCommit
from holdfast.checkpoints.formats.spark.names import DEFAULT_STORE, StoreId
from holdfast.checkpoints.formats.spark.restores.location import Findings, Location
from holdfast.checkpoints.formats.spark.restores.logs import Logs
from holdfast.checkpoints.formats.spark.restores.operators import Operators
from holdfast.checkpoints.formats.spark.restores.sources import SourceLogs
from holdfast.checkpoints.formats.spark.restores.state import Attempt, StoreFiles
from holdfast.checkpoints.plans import Listed
from holdfast.errors import NoSuchPlanError

_STORES_AT_ONCE = 8
"""The number of stores whose files are asked for side by side. Those of a thousand partitions would fill the memory."""
_MOST_EXPIRED = 2
"""The number of oldest batches that may lack files because Spark has purged them. Spark purges offsets with their commits,
and needs those before a batch too; of its state it may keep a version less."""


def restores(
    path: bytes, listing: Iterable[Listed], batch: int | None, spoilt: Collection[bytes], engine: EngineVersion | None = None
) -> Asking[list[Restore]]:
    """Say of each retained batch of the query at ``path``, or of ``batch``, whether a restart from it finds what it reads.

    ``engine`` is the version of Spark that restarts; None: the newest. Raises ``PlanError`` when there is no such batch.
    """
    location = Location(path, listing, spoilt)
    logs, sources, operators = Logs(location), SourceLogs(location), Operators(location)
    if batch is not None and batch not in logs.batches:
        raise NoSuchPlanError(f"there is no batch {batch}: neither commits/{batch} nor offsets/{batch}")
    batches = logs.batches if batch is None else [batch]
    yield from logs.read(batches)
    yield from sources.read()
    yield from operators.read()
    found = {each: _of_logs(each, logs, sources, operators) for each in batches}
    needed = _needed(batches, logs, operators, location)
    stores = []
    for store, of_batches in needed.items():
        committed = {attempt.version: attempt.unique_id for attempt in of_batches.values()}
        files = StoreFiles(location, _directory(store), operators.kinds(store.operator), committed, engine)
        stores.append(_of_store(files, of_batches, found))
    for first in range(0, len(stores), _STORES_AT_ONCE):
        yield from together(stores[first : first + _STORES_AT_ONCE])
    return _expired([_restore(each, found[each], logs, location) for each in batches], logs.batches[:_MOST_EXPIRED])


def _of_logs(batch: int, logs: Logs, sources: SourceLogs, operators: Operators) -> Findings:
    found = logs.findings(batch)
    again = logs.under_way(batch)
    before, after = (batch - 1, batch) if again is None else (again - 1, again)
    found.add(sources.findings(logs.offsets(before), logs.offsets(after)))
    found.add(operators.findings(batch))
    return found


def _needed(
    batches: Sequence[int], logs: Logs, operators: Operators, location: Location
) -> dict[StoreId, dict[int, Attempt]]:
    """Return, for each store, which attempt a restart from each batch loads."""
    needed: dict[StoreId, dict[int, Attempt]] = {}
    for batch in batches:
        again = logs.under_way(batch)
        version = batch + 1 if again is None else again
        commit = logs.commit(batch)
        for operator, partitions in operators.stores(batch, logs.offsets(batch), commit).items():
            for partition, stores in enumerate(partitions):
                unique_ids = _unique_ids(commit, operator, partition, stores, version, location)
                for store, unique_id in zip(stores, unique_ids, strict=True):
                    needed.setdefault(store, {})[batch] = Attempt(version, unique_id)
    return needed


def _unique_ids(
    commit: SparkCommit | None, operator: int, partition: int, stores: Sequence[StoreId], version: int, location: Location
) -> list[bytes]:
    """Return the unique ids of a partition's stores: told by the files that are there, else by their place."""
    ids = list((commit.unique_ids or {}).get((operator, partition), ())) if commit else []
    found: dict[StoreId, bytes] = {}
    for store in stores:
        for unique_id in ids:
            stem = b"%s/%s" % (_directory(store), Attempt(version, unique_id).stem)
            if location.has(stem + b".changelog") or location.has(stem + b".zip"):
                found[store] = unique_id
    left = iter([each for each in ids if each not in found.values()])
    return [found.get(store) or next(left, b"") for store in stores]


def _of_store(store: StoreFiles, attempts: dict[int, Attempt], found: dict[int, Findings]) -> Asking[None]:
    for batch, attempt in attempts.items():
        found[batch].add((yield from store.findings(attempt)))


def _restore(batch: int, found: Findings, logs: Logs, location: Location) -> Restore:
    again = logs.under_way(batch)
    remarks = [] if again is None else [f"a restart runs batch {again} again, which was not committed"]
    return Restore(
        location.whole(b"commits/%d" % batch),
        "batch",
        tuple(dict.fromkeys(found.faults)),
        tuple(dict.fromkeys(remarks + found.remarks)),
        (tuple(found.reads),),
        is_newest=batch == logs.newest,
    )


def _expired(found: list[Restore], oldest: Sequence[int]) -> list[Restore]:
    """Mark those of the oldest batches that lack something, when all that they lack has gone: Spark has purged it."""
    result = []
    may_be = True
    for restore in found:
        number = int(restore.name.rpartition(b"/")[2])
        may_be = may_be and number in oldest and not restore.is_newest and not restore.is_good
        may_be = may_be and all(fault.is_missing for fault in restore.faults)
        result.append(replace(restore, is_expired=may_be))
    return result


def _directory(store: StoreId) -> bytes:
    directory = b"state/%d/%d" % (store.operator, store.partition)
    return directory if store.store == DEFAULT_STORE else b"%s/%s" % (directory, store.store)
