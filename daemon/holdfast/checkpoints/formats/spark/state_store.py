"""One state store of Spark, and which of its files the retained batches need.

A store's directory holds state versions, each a snapshot (``N.zip``, ``N.snapshot``) or what a batch changed
(``N.changelog``, ``N.delta``), and the SSTs and logs that its zips share. To restore a version takes the newest snapshot not
above it and every change since. In format 2 several attempts may have written one version; which one counts is told by the
commit before it, and on the way down by the changelogs' lineages. Sources: S ``RocksDB.loadWithCheckpointId``,
``RocksDBFileManager``, ``HDFSBackedStateStoreProvider.cleanup``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.checkpoints.examination import Asking, Wanted
from holdfast.checkpoints.formats.spark.changelog import LineageItem, SparkChangelog
from holdfast.checkpoints.formats.spark.manifests import CHANGELOG, SNAPSHOT
from holdfast.checkpoints.formats.spark.names import STATE_OF_A_VERSION, SparkKind, SparkName
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot
from holdfast.checkpoints.manifests import Unreadable
from holdfast.checkpoints.plans import Kept, Listed, Phase, PlanBuilder, Reason
from holdfast.system.text import shown

_SHARED = (SparkKind.SST, SparkKind.ARCHIVED_LOG)
_FAMILIES = ((SparkKind.ZIP, SparkKind.CHANGELOG), (SparkKind.SNAPSHOT, SparkKind.DELTA))
"""The kinds of snapshots and changes of each provider."""
_SNAPSHOTS_AT_ONCE = 16
"""The number of snapshots that are read side by side. Of the names in them only those of files that are there are kept, so
that memory does not grow with the number of snapshots."""
_FIRST_VERSION = 1
"""The first version of a store that has files: version 0 is empty, and nothing is written for it."""

Attempt = tuple[int, bytes]
"""A version, and the unique id of the attempt that wrote it."""


@dataclass(slots=True)
class Store:
    """The final files of one store's directory, by their kinds."""

    directory: bytes
    versions: list[tuple[Listed, SparkName]] = field(default_factory=list)
    shared: list[Listed] = field(default_factory=list)
    attempts: dict[tuple[SparkKind, int, bytes], Listed] = field(default_factory=dict)
    """The snapshots and changes of format 2, by kind, version and unique id."""

    def add(self, listed: Listed, name: SparkName) -> None:
        """Take up a file."""
        if name.kind in _SHARED:
            self.shared.append(listed)
        elif name.kind in STATE_OF_A_VERSION and name.number is not None:
            self.versions.append((listed, name))
            if name.unique_id is not None:
                self.attempts[name.kind, name.number, name.unique_id] = listed

    def has(self, attempt: Attempt) -> bool:
        """Return whether this attempt has left a snapshot or its changes."""
        return any((kind, *attempt) in self.attempts for kind in (SparkKind.ZIP, SparkKind.CHANGELOG))

    def needs_chain(self, oldest: int, builder: PlanBuilder) -> bool:
        """Return whether anything of format 2 may be superfluous, for batches from ``oldest`` on."""
        return any(name.is_format_2 and _number(name) < oldest and builder.is_old(listed) for listed, name in self.versions)


@dataclass(frozen=True, slots=True)
class Chain:
    """The attempts that restore the oldest version: a snapshot of version ``base`` (0: none), and the changes since."""

    base: int
    attempts: frozenset[Attempt]


def chain_of(store: Store, newest: Attempt) -> Asking[Chain | Kept]:
    """Follow the lineages from an attempt that is there down to a snapshot."""
    attempts = {newest}
    lowest = newest
    while (SparkKind.ZIP, *lowest) not in store.attempts and lowest[0] > _FIRST_VERSION:
        listed = store.attempts.get((SparkKind.CHANGELOG, *lowest))
        if listed is None:
            return Kept(store.directory, f"the changelog of version {lowest[0]} is not there, nor a snapshot")
        answers = yield [Wanted(listed.name, CHANGELOG, listed.size_bytes)]
        changelog = answers[listed.name]
        if isinstance(changelog, Unreadable):
            return Kept(listed.name, str(changelog), changelog.trouble)
        lineage = changelog.lineage if isinstance(changelog, SparkChangelog) else None
        below = _down_to_a_snapshot(store, lineage or (), lowest[0])
        if not below:
            return Kept(listed.name, "its lineage leads to no snapshot")
        attempts.update(below)
        lowest = below[-1]
    gap = min((attempt for attempt in attempts if not store.has(attempt)), default=None)
    if gap is not None:
        return Kept(store.directory, f"version {gap[0]} of a lineage is not there")
    is_snapshot = (SparkKind.ZIP, *lowest) in store.attempts
    return Chain(lowest[0] if is_snapshot else 0, frozenset(attempts))


def _down_to_a_snapshot(store: Store, lineage: Iterable[LineageItem], above: int) -> list[Attempt]:
    """Return the attempts of a lineage in falling order, down to the first that left a snapshot."""
    found: list[Attempt] = []
    for item in sorted(lineage, key=lambda item: -item.version):
        if item.version < above:
            found.append((item.version, item.unique_id))
            if (SparkKind.ZIP, item.version, item.unique_id) in store.attempts:
                break
    return found


def plan_plain_versions(store: Store, oldest: int, builder: PlanBuilder) -> None:
    """Plan to remove versions of format 1 that no batch from ``oldest`` on needs."""
    for family in _FAMILIES:
        plain = [(listed, name) for listed, name in store.versions if name.kind in family and not name.is_format_2]
        snapshots = [_number(name) for _, name in plain if name.kind is family[0] and _number(name) <= oldest]
        base = max(snapshots, default=0)
        for listed, name in plain:
            if _number(name) >= base:
                builder.retain([listed.name])
            elif builder.is_old(listed):
                _add(builder, listed, name, Reason.EXPIRED_VERSION)


def plan_attempts(store: Store, oldest: int, chain: Chain | None, builder: PlanBuilder) -> None:
    """Plan to remove versions of format 2 below ``oldest`` that the chain does not need; without one, none."""
    for listed, name in store.versions:
        if not name.is_format_2:
            continue
        number = _number(name)
        if chain is None or number >= oldest or (number, name.unique_id) in chain.attempts:
            builder.retain([listed.name])
        elif builder.is_old(listed):
            _add(builder, listed, name, Reason.EXPIRED_VERSION if number < chain.base else Reason.FAILED_ATTEMPT)


def plan_shared(store: Store, builder: PlanBuilder) -> Asking[None]:
    """Plan to remove SSTs and logs that no remaining zip names. If one of these can't be read, none goes."""
    if not any(builder.is_old(listed) for listed in store.shared):
        builder.retain(listed.name for listed in store.shared)
        return
    zips = [
        Wanted(listed.name, SNAPSHOT, listed.size_bytes)
        for listed, name in store.versions
        if name.kind is SparkKind.ZIP and builder.reason_of(listed.name) is None
    ]
    there = {listed.name for listed in store.shared}
    named: set[bytes] = set()
    for first in range(0, len(zips), _SNAPSHOTS_AT_ONCE):
        asked = zips[first : first + _SNAPSHOTS_AT_ONCE]
        answers = yield asked
        for wanted in asked:
            snapshot = answers[wanted.name]
            if isinstance(snapshot, SparkSnapshot):
                named.update(there.intersection(b"%s/%s" % (store.directory, file.name) for file in snapshot.files))
            else:
                trouble = snapshot.trouble if isinstance(snapshot, Unreadable) else None
                builder.keep(Kept(wanted.name, f"{snapshot}; all shared files beside it stay", trouble))
                named |= there
    builder.retain(listed.name for listed in store.shared if listed.name in named)
    for listed in store.shared:
        if listed.name not in named and builder.is_old(listed):
            builder.add(listed, Reason.UNREFERENCED, f"in no snapshot of {shown(store.directory)}")


def _add(builder: PlanBuilder, listed: Listed, name: SparkName, reason: Reason) -> None:
    phase = Phase.MANIFEST if name.kind is SparkKind.ZIP else Phase.FILE
    builder.add(listed, reason, f"version {name.number} of {shown(listed.name.rpartition(b'/')[0])}", phase)


def _number(name: SparkName) -> int:
    return name.number or 0
