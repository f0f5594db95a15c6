"""The files that one state store needs for a version: a snapshot that is whole, and every change since.

Spark takes the newest snapshot that is not above the version. If that can't be loaded, Spark 4.2 and
later take an older one, or begin with nothing, and apply more changes: any snapshot will do from which the changes lead up
without a gap. Earlier ones give up. In format 2 the
commit says which attempt wrote the version, and the lineage in its changelog which ones led up to it, back to some snapshot;
for an older one Spark follows the lineages to the very first version, and gives up if it can't. Sources: S ``RocksDB.load``,
``AutoSnapshotLoader``, ``HDFSBackedStateStoreProvider`` (Spark 4.3; tried in ``tests/spark/test_verify.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface import EngineVersion, Fault
from holdfast.checkpoints.formats.spark.changelog import LineageItem, SparkChangelog
from holdfast.checkpoints.formats.spark.manifests import CHECKSUM, SNAPSHOT, STATE_FILE, WHOLE_CHANGELOG
from holdfast.checkpoints.formats.spark.names import SparkKind
from holdfast.checkpoints.formats.spark.restores.location import Findings, Location
from holdfast.checkpoints.formats.spark.small_files import SparkChecksum
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot
from holdfast.checkpoints.manifests import Manifest, Trouble, Unreadable
from holdfast.system.text import shown

_MOST_REPLAYED = 500
"""Default of ``spark.sql.streaming.stateStore.autoSnapshotRepair.maxChangeFileReplay``."""
_FALLS_BACK = (4, 2)
"""The first version of Spark that takes an older snapshot if the newest can't be loaded (SPARK-54121, SPARK-56216)."""
_EXPECTS_ITS_FORMAT = (4, 0)
"""The only version of Spark that writes a checkpoint's format into its snapshots, and reads no others; all others write and
read 1."""
_FIRST = 1
"""The first version of a store that has files: version 0 is empty."""
_CHECKSUM = b".crc"
_OF_4_0 = "Spark 4.0 wrote snapshots ('v2') that no other Spark reads"


class Attempt(NamedTuple):
    """A version of a store; ``unique_id`` is empty in format 1."""

    version: int
    unique_id: bytes

    @property
    def stem(self) -> bytes:
        """The beginning of the names of its files."""
        return b"%d_%s" % self if self.unique_id else b"%d" % self.version


class _Checked(NamedTuple):
    """The files that a snapshot or a change takes, a fault among them, and a remark on what a restart copes with."""

    reads: list[bytes]
    fault: Fault | None
    remark: str = ""


class StoreFiles:
    """The files in ``directory`` of one store, relative to the location. Each is read once, for all versions.

    ``kinds`` are those that the operator's stores have. ``committed`` are the attempts that commits tell of, for versions
    whose changelog has a lineage that can't be read. ``engine`` is the Spark that restarts; None: the newest.
    """

    def __init__(
        self,
        location: Location,
        directory: bytes,
        kinds: Iterable[SparkKind],
        committed: Mapping[int, bytes],
        engine: EngineVersion | None = None,
    ) -> None:
        self._location = location
        self._directory = directory
        is_hdfs_backed = not {SparkKind.DELTA, SparkKind.SNAPSHOT}.isdisjoint(kinds)
        self._snapshot, self._change = (b".snapshot", b".delta") if is_hdfs_backed else (b".zip", b".changelog")
        self._snapshot_kind, self._change_kind = (STATE_FILE, STATE_FILE) if is_hdfs_backed else (SNAPSHOT, WHOLE_CHANGELOG)
        self._has_changes = not {SparkKind.DELTA, SparkKind.CHANGELOG}.isdisjoint(kinds)
        self._committed = committed
        self._engine = engine
        self._falls_back = engine is None or engine >= _FALLS_BACK
        self._snapshots: dict[Attempt, _Checked] = {}
        self._changes: dict[Attempt, _Checked] = {}
        self._lineages: dict[Attempt, tuple[LineageItem, ...]] = {}

    def findings(self, newest: Attempt) -> Asking[Findings]:
        """Return the files that loading an attempt's version takes, and what is wrong with them."""
        found = Findings()
        attempts = yield from self._attempts(newest)
        position = 0
        while position < len(attempts):
            attempt = Attempt(attempts[position], b"") if isinstance(attempts, range) else attempts[position]
            if self._location.has(self._name(attempt, self._snapshot)):
                snapshot = yield from self._checked_snapshot(attempt)
                if snapshot.fault is None:
                    found.reads += snapshot.reads
                    found.remarks += [snapshot.remark] if snapshot.remark else []
                    return self._got_by(found)
                found.faults.append(snapshot.fault)
                if not self._falls_back or newest.version - attempt.version > _MOST_REPLAYED:
                    return found
                if attempt.unique_id:
                    attempts = (yield from self._full_lineage(newest)) or [attempt] * (position + 1)
            change = yield from self._checked_change(attempt)
            found.reads += change.reads
            if change.fault is not None:
                found.faults.append(change.fault)
                return found
            if attempt.version == _FIRST:
                return self._got_by(found)
            position += 1
        if newest.version:
            found.faults.append(
                Fault(self._location.whole(self._name(newest, self._change)), "its lineage leads to no other snapshot")
            )
        return found

    def _attempts(self, newest: Attempt) -> Asking[list[Attempt] | range]:
        """Return the attempts that led up to this one, the newest first; in format 1 only their versions."""
        if not newest.unique_id:
            return range(newest.version, 0, -1)
        if not self._location.has(self._name(newest, self._snapshot)):
            yield from self._checked_change(newest)
        return [newest, *self._led_up_to(newest)]

    def _full_lineage(self, newest: Attempt) -> Asking[list[Attempt]]:
        """Return the attempts back to the first, by one changelog's lineage after the other; empty if one can't be read."""
        attempts = [newest]
        while attempts[-1].version > _FIRST:
            yield from self._checked_change(attempts[-1])
            before = self._led_up_to(attempts[-1])
            if not before:
                return []
            attempts += before
        return attempts

    def _led_up_to(self, attempt: Attempt) -> list[Attempt]:
        """Return the attempts that led up to one by its lineage, or by the commits; the newest first."""
        lineage = self._lineages.get(attempt)
        if lineage is None:
            return list(self._committed_before(attempt.version))
        below = (item for item in sorted(lineage, key=lambda item: -item.version) if item.version < attempt.version)
        return [Attempt(item.version, item.unique_id) for item in below]

    def _committed_before(self, version: int) -> Iterator[Attempt]:
        while unique_id := self._committed.get(version := version - 1):
            yield Attempt(version, unique_id)

    def _got_by(self, found: Findings) -> Findings:
        """Turn the faults of snapshots into remarks: an older one did, with the changes since."""
        found.remarks += [f"{shown(fault.name)}: {fault.why}" for fault in found.faults]
        if found.faults:
            found.remarks.append("a restart has to begin from an older snapshot, which only Spark 4.2 and later do")
        found.faults.clear()
        return found

    def _checked_snapshot(self, attempt: Attempt) -> Asking[_Checked]:
        checked = self._snapshots.get(attempt)
        if checked is None:
            name = self._name(attempt, self._snapshot)
            answer = (yield from self._location.read([name], self._snapshot_kind))[name]
            fault = self._location.unreadable(name, answer)
            reads, of_checksum = yield from self._checked_size(name)
            fault = fault or of_checksum
            remark = ""
            if isinstance(answer, SparkSnapshot):
                for file in answer.files:
                    shared = b"%s/%s" % (self._directory, file.name)
                    reads.append(self._location.whole(shared))
                    fault = fault or self._location.fault(shared, file.size_bytes)
                fault = fault or self._refused(name, answer, attempt)
                remark = _OF_4_0 if self._engine is None and answer.version != 1 else ""
            checked = self._snapshots[attempt] = _Checked(reads, fault, remark)
        return checked

    def _refused(self, name: bytes, snapshot: SparkSnapshot, attempt: Attempt) -> Fault | None:
        """Say that the Spark that restarts does not read a snapshot because of the version of its metadata.

        One of 4.0 may have 2 in queries of format 1 as well, so there both are taken for right.
        """
        if self._engine == _EXPECTS_ITS_FORMAT:
            is_read = snapshot.version == 2 or not attempt.unique_id
        else:
            is_read = snapshot.version == 1 or self._engine is None
        if is_read:
            return None
        return Fault(self._location.whole(name), f"this Spark does not read version {snapshot.version} of it")

    def _checked_change(self, attempt: Attempt) -> Asking[_Checked]:
        checked = self._changes.get(attempt)
        if checked is None:
            name = self._name(attempt, self._change)
            answer = (yield from self._location.read([name], self._change_kind))[name]
            if isinstance(answer, SparkChangelog) and answer.lineage is not None:
                self._lineages[attempt] = answer.lineage
            reads, of_checksum = yield from self._checked_size(name)
            checked = self._changes[attempt] = _Checked(reads, self._unreadable(name, answer) or of_checksum)
        if checked.fault is not None and not self._has_changes:
            name = self._name(attempt, self._snapshot)
            fault = self._location.fault(name) or self._snapshots[attempt].fault
            return _Checked([], fault)
        return checked

    def _unreadable(self, name: bytes, change: Manifest) -> Fault | None:
        """Say what is wrong with a change. Only one in a codec that is not known here may be right: Spark knows it."""
        is_foreign = isinstance(change, Unreadable) and change.trouble is Trouble.UNKNOWN_CODEC
        return self._location.fault(name) if is_foreign else self._location.unreadable(name, change)

    def _checked_size(self, name: bytes) -> Asking[tuple[list[bytes], Fault | None]]:
        """Compare a file with what Spark's checksum says of its size, if there is one."""
        reads = [self._location.whole(name)]
        beside = name + _CHECKSUM
        if not (self._location.has(name) and self._location.has(beside)):
            return reads, None
        answer = (yield from self._location.read([beside], CHECKSUM))[beside]
        reads.append(self._location.whole(beside))
        size_bytes = answer.size_bytes if isinstance(answer, SparkChecksum) else None
        return reads, self._location.unreadable(beside, answer) or self._location.fault(name, size_bytes)

    def _name(self, attempt: Attempt, ending: bytes) -> bytes:
        return b"%s/%s%s" % (self._directory, attempt.stem, ending)
