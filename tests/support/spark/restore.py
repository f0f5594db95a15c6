"""Which state versions Spark could restore from a root: by what its providers do when they load, step by step.

It knows nothing of sweeps: it lists, opens and follows, as ``RocksDB.load`` and ``HDFSBackedStateStoreProvider`` do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.checkpoints.formats.spark.batch_log import SparkCommit, read_spark_commit
from holdfast.checkpoints.formats.spark.changelog import LineageItem, SparkChangelog, read_spark_changelog
from holdfast.checkpoints.formats.spark.snapshot import SparkSnapshot, read_spark_snapshot
from tests.support.checkpoints.roots import Root

_STORE = re.compile(rb"(?P<store>(?:.*/)?state/(?P<operator>\d+)/(?P<partition>\d+)(?:/[^/]+)?)/\d+(?:_[^/]*)?\.[a-z]+")


class Restorable(NamedTuple):
    """A store and a version of it that can be restored; ``unique_id`` is empty in format 1."""

    store: bytes
    version: int
    unique_id: bytes


class Checkpoint:
    """The checkpoint locations in a root."""

    def __init__(self, root: Root) -> None:
        self._files = root.files
        self._stores = {
            (match["store"], int(match["operator"]), int(match["partition"]))
            for name in root.files
            if (match := _STORE.fullmatch(name)) is not None and b"/SSTs/" not in name
        }

    def restorable(self) -> set[Restorable]:
        """What the state of each batch with a commit can be restored to."""
        return set(self._restorable())

    def restorable_at(self, version: int) -> set[bytes]:
        """The stores whose state of this version can be restored in format 1, as a batch that runs again needs it."""
        return {store for store, _, _ in self._stores if self._loads(store, max(0, version))}

    def _restorable(self) -> Iterator[Restorable]:
        for store, operator, partition in self._stores:
            location = store[: store.rindex(b"state/")]
            for name in self._files:
                batch = name.removeprefix(location + b"commits/")
                if not batch.isdigit():
                    continue
                content = self._files[name][0]
                commit = read_spark_commit(io.BytesIO(content), len(content))
                assert isinstance(commit, SparkCommit)
                version = int(batch) + 1
                if commit.unique_ids is None:
                    if self._loads(store, version):
                        yield Restorable(store, version, b"")
                else:
                    for unique_id in commit.unique_ids.get((operator, partition), ()):
                        if self._loads_attempt(store, version, unique_id):
                            yield Restorable(store, version, unique_id)

    def _loads(self, store: bytes, version: int) -> bool:
        """Format 1: the newest snapshot not above the version, and every change since."""
        for snapshots, changes in ((b"zip", b"changelog"), (b"snapshot", b"delta")):
            base = version
            while base and not self._has(store, b"%d.%s" % (base, snapshots)):
                base -= 1
            is_whole = not base or snapshots != b"zip" or self._is_whole(b"%s/%d.zip" % (store, base))
            if is_whole and all(self._has(store, b"%d.%s" % (each, changes)) for each in range(base + 1, version + 1)):
                return True
        return False

    def _loads_attempt(self, store: bytes, version: int, unique_id: bytes) -> bool:
        """Format 2: a snapshot of this attempt, or the newest in its lineage and the changelogs since."""
        lineage = [(version, unique_id)]
        if not self._has(store, b"%d_%s.zip" % lineage[0]):
            if not self._has(store, b"%d_%s.changelog" % lineage[0]):
                return False
            lineage += [(item.version, item.unique_id) for item in reversed(self._lineage(store, *lineage[0]))]
        for index, attempt in enumerate(lineage):
            if self._has(store, b"%d_%s.zip" % attempt):
                changes = lineage[:index]
                whole = self._is_whole(b"%s/%d_%s.zip" % (store, *attempt))
                return whole and all(self._has(store, b"%d_%s.changelog" % each) for each in changes)
        return lineage[-1][0] == 1 and all(self._has(store, b"%d_%s.changelog" % each) for each in lineage)

    def _lineage(self, store: bytes, version: int, unique_id: bytes) -> tuple[LineageItem, ...]:
        content = self._files[b"%s/%d_%s.changelog" % (store, version, unique_id)][0]
        changelog = read_spark_changelog(io.BytesIO(content), len(content))
        return (changelog.lineage or ()) if isinstance(changelog, SparkChangelog) else ()

    def _is_whole(self, name: bytes) -> bool:
        content = self._files[name][0]
        snapshot = read_spark_snapshot(io.BytesIO(content), len(content))
        directory = name.rpartition(b"/")[0]
        return isinstance(snapshot, SparkSnapshot) and all(
            b"%s/%s" % (directory, file.name) in self._files for file in snapshot.files
        )

    def _has(self, store: bytes, name: bytes) -> bool:
        return b"%s/%s" % (store, name) in self._files
