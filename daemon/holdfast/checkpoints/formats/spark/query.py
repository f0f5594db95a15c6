"""One checkpoint location of Spark: which batches are retained, and which of the other files can be deleted.

Spark's own rules decide: a batch is retained as long as its commit is there, and at least the newest
``min_batches_to_retain`` are, whatever is there. State versions are numbered one above the batch that wrote them; one more
is kept below the oldest retained batch, for that batch may be run again. Logs, schemas and metadata are Spark's to purge.
Sources: S ``MicroBatchExecution.purge``, ``StateStoreConf.minVersionsToRetain``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.checkpoints.examination import Asking, Wanted, together
from holdfast.checkpoints.formats.spark.batch_log import SparkCommit
from holdfast.checkpoints.formats.spark.manifests import COMMIT
from holdfast.checkpoints.formats.spark.names import SparkKind, SparkName, StoreId, parse_spark
from holdfast.checkpoints.formats.spark.state_store import (
    Chain,
    Store,
    chain_of,
    plan_attempts,
    plan_plain_versions,
    plan_shared,
)
from holdfast.checkpoints.formats.spark.wrapping import Layer
from holdfast.checkpoints.manifests import Unreadable
from holdfast.checkpoints.plans import Kept, Listed, Phase, PlanBuilder, Reason
from holdfast.system.text import shown

SET_ASIDE = b"_rewound"
"""The directory in which rewinds keep what they have taken away, each in a directory of its own."""
_STORES_AT_ONCE = 8
"""The number of stores whose snapshots are read side by side. Those of a thousand partitions would fill the memory."""
_COMMITS_AT_ONCE = 4
"""The number of commits that are read side by side. The oldest commit's state may be gone, because Spark keeps one version
less than batches; the second one nearly always answers."""


@dataclass(slots=True)
class Query:
    """The files that were listed below one checkpoint location."""

    location: bytes
    commits: dict[int, Listed] = field(default_factory=dict)
    stores: dict[StoreId, Store] = field(default_factory=dict)
    offsets: dict[int, Listed] = field(default_factory=dict)
    others: list[Listed] = field(default_factory=list)
    wrapped: list[tuple[Listed, SparkName]] = field(default_factory=list)
    """Temporary files and checksums."""
    set_aside: dict[bytes, list[Listed]] = field(default_factory=dict)
    """The files that rewinds have set aside, by the names of the rewinds' directories."""

    def add(self, listed: Listed, name: SparkName) -> None:
        """Take up a file; ``name`` is relative to the location."""
        if name.layers:
            self.wrapped.append((listed, name))
        elif name.kind is SparkKind.COMMIT and name.number is not None:
            self.commits[name.number] = listed
        elif name.kind is SparkKind.OFFSETS and name.number is not None:
            self.offsets[name.number] = listed
        elif name.store is not None and name.kind is not SparkKind.STATE_SCHEMA:
            depth = 2 if name.kind in (SparkKind.SST, SparkKind.ARCHIVED_LOG) else 1
            directory = listed.name.rsplit(b"/", depth)[0]
            self.stores.setdefault(name.store, Store(directory)).add(listed, name)
        else:
            self.others.append(listed)

    @classmethod
    def of(cls, location: bytes, listing: Iterable[Listed]) -> Query:
        """Return the query at ``location``, of all that lies in it; unknown names and directories are left out."""
        query = cls(location)
        skip = len(location) + 1 if location else 0
        for listed in listing:
            relative = listed.name[skip:]
            if relative.startswith(SET_ASIDE + b"/"):
                query.set_aside.setdefault(relative.split(b"/")[1], []).append(listed)
                continue
            name = parse_spark(relative)
            if isinstance(name, SparkName) and not listed.is_directory:
                query.add(listed, name)
        return query

    def lasting(self) -> Iterator[Listed]:
        """Yield what is Spark's alone to delete."""
        yield from (*self.commits.values(), *self.offsets.values(), *self.others)


def plan_query(query: Query, builder: PlanBuilder) -> Asking[None]:
    """Plan what can be deleted below a checkpoint location."""
    builder.retain(listed.name for listed in query.lasting())
    if query.commits:
        oldest = min(min(query.commits), max(query.commits) - builder.policy.min_batches_to_retain)
        chains = yield from chains_from(query, oldest, builder)
        for store_id, store in query.stores.items():
            plan_plain_versions(store, oldest, builder)
            plan_attempts(store, oldest, chains.get(store_id), builder)
        stores = [] if _may_be_undone(query, builder) else list(query.stores.values())
        for first in range(0, len(stores), _STORES_AT_ONCE):
            yield from together([plan_shared(store, builder) for store in stores[first : first + _STORES_AT_ONCE]])
    elif query.stores:
        builder.keep(Kept(query.location, "it has no commit: all its state stays"))
    plan_wrapped(query.wrapped, _final_names(query), builder)
    for rewind, files in query.set_aside.items():
        _plan_set_aside(rewind, files, builder)


def _may_be_undone(query: Query, builder: PlanBuilder) -> bool:
    """Return whether a rewind can still be undone. If so, its versions may need files that no other version shares."""
    kept = (listed for files in query.set_aside.values() for listed in files if not listed.is_directory)
    return not all(builder.is_old(listed) for listed in kept)


def _plan_set_aside(rewind: bytes, files: Sequence[Listed], builder: PlanBuilder) -> None:
    """Plan to remove what a rewind has set aside. A copy may have its original's time, the note of the rewind has its own.

    Empty directories go with what was in them.
    """
    if all(builder.is_old(listed) for listed in files):
        for listed in files:
            if not listed.is_directory:
                builder.add(listed, Reason.SET_ASIDE, f"rewind {shown(rewind)}")


def _final_names(query: Query) -> set[bytes]:
    names = {listed.name for listed in query.lasting()}
    for store in query.stores.values():
        names.update(listed.name for listed, _ in store.versions)
        names.update(listed.name for listed in store.shared)
    return names


def chains_from(query: Query, oldest: int, builder: PlanBuilder) -> Asking[dict[StoreId, Chain]]:
    """Find, for each store that has something to judge by it, what the oldest version that can be restored takes."""
    unanswered = {store_id for store_id, store in query.stores.items() if store.needs_chain(oldest, builder)}
    starts: dict[StoreId, tuple[int, bytes]] = {}
    in_order = sorted(query.commits)
    for first in range(0, len(in_order), _COMMITS_AT_ONCE):
        if not unanswered:
            break
        batches = in_order[first : first + _COMMITS_AT_ONCE]
        listed = [query.commits[batch] for batch in batches]
        answers = yield [Wanted(each.name, COMMIT, each.size_bytes) for each in listed]
        for batch, each in zip(batches, listed, strict=True):
            commit = answers[each.name]
            if isinstance(commit, Unreadable):
                builder.keep(Kept(each.name, f"{commit}; no attempt is told from another", commit.trouble))
                return {}
            if isinstance(commit, SparkCommit):
                found = _starts(query, unanswered, batch + 1, commit)
                starts.update(found)
                unanswered -= found.keys()
    for store_id in unanswered:
        builder.keep(
            Kept(query.stores[store_id].directory, "no retained batch has state here: no attempt is told from another")
        )
    followed = yield from together([chain_of(query.stores[store_id], start) for store_id, start in starts.items()])
    for chain in followed:
        if isinstance(chain, Kept):
            builder.keep(chain)
    return {store_id: chain for store_id, chain in zip(starts, followed, strict=True) if isinstance(chain, Chain)}


def _starts(query: Query, stores: Iterable[StoreId], version: int, commit: SparkCommit) -> dict[StoreId, tuple[int, bytes]]:
    """Return the attempts that wrote ``version`` of these stores according to its commit, if their files are there."""
    found = {}
    for store_id in stores:
        for unique_id in (commit.unique_ids or {}).get((store_id.operator, store_id.partition), ()):
            if query.stores[store_id].has((version, unique_id)):
                found[store_id] = (version, unique_id)
    return found


def plan_wrapped(wrapped: Sequence[tuple[Listed, SparkName]], present: set[bytes], builder: PlanBuilder) -> None:
    """Plan to remove temporary files, and checksums of what goes or is not there. ``present`` are the files themselves.

    ``SparkName.owner`` is relative to the location; the owner's whole name has the same directory as the file's.
    """
    present = present | {listed.name for listed, _ in wrapped}
    for listed, name in sorted(wrapped, key=lambda each: len(each[1].layers)):
        owner = listed.name.rpartition(b"/")[0] + b"/" + name.owner.rpartition(b"/")[2]
        owner = owner.removeprefix(b"/")
        reason = builder.reason_of(owner)
        about = f"of {shown(owner)}"
        if name.layers[0] is Layer.TEMPORARY:
            if builder.is_old(listed):
                builder.add(listed, Reason.TEMPORARY, about)
        elif reason is not None:
            builder.add(listed, reason, about, Phase.CHECKSUM)
        elif owner not in present and builder.is_old(listed):
            builder.add(listed, Reason.ORPHANED_CHECKSUM, about, Phase.CHECKSUM)
