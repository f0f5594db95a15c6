"""The driver's own files: ``metadata``, and the offsets and commits that it reads when it starts.

It reads the newest offsets and those before them, and the newest commit. If the newest offsets have no commit, it runs that
batch again: after a crash in the middle of a batch, and also from a batch whose commit has been lost, even if all commits
are. Source: S ``MicroBatchExecution.populateStartOffsets`` (Spark 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.spark.batch_log import SparkCommit, SparkOffsets
from holdfast.checkpoints.formats.spark.manifests import COMMIT, OFFSETS, QUERY_METADATA
from holdfast.checkpoints.formats.spark.restores.location import Findings, Location
from holdfast.checkpoints.manifests import Manifest

_METADATA = b"metadata"


class Logs:
    """The logs of one location, as far as they were read."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._commits = set(_numbers(location, b"commits/"))
        self._offsets = set(_numbers(location, b"offsets/"))
        self._read: dict[bytes, Manifest] = {}

    @property
    def newest(self) -> int:
        """The newest batch with a commit or, where no commit is left, the newest with offsets; -1 if there is none."""
        return max(self._commits or self._offsets, default=-1)

    @property
    def batches(self) -> list[int]:
        """The batches that a query might go on from: all with a commit, and up to the newest all with offsets."""
        return sorted(self._commits | {number for number in self._offsets if number <= self.newest})

    def under_way(self, batch: int) -> int | None:
        """Return the batch that a restart from ``batch`` runs again, because it has offsets and no commit."""
        if batch not in self._commits:
            return batch
        newest = max(self._offsets, default=-1)
        return newest if batch == self.newest and newest > batch else None

    def read(self, batches: list[int]) -> Asking[None]:
        """Read all that a restart from these batches reads."""
        offsets = {number for batch in batches for number in self._offsets_read(batch)}
        self._read.update((yield from self._location.read([_METADATA], QUERY_METADATA)))
        commits = dict.fromkeys(name for batch in batches for name in self._commit_read(batch))
        self._read.update((yield from self._location.read(list(commits), COMMIT)))
        self._read.update((yield from self._location.read([b"offsets/%d" % number for number in sorted(offsets)], OFFSETS)))

    def findings(self, batch: int) -> Findings:
        """Say what of these files a restart from ``batch`` reads, and what is wrong with it."""
        offsets = [b"offsets/%d" % number for number in self._offsets_read(batch)]
        found = Findings()
        for name in (_METADATA, *self._commit_read(batch), *offsets):
            found.reads.append(self._location.whole(name))
            fault = self._location.unreadable(name, self._read[name])
            if fault is not None:
                found.faults.append(fault)
        return found

    def commit(self, batch: int) -> SparkCommit | None:
        """Return the commit that a restart from a batch reads, if it can be read."""
        commit = next((self._read[name] for name in self._commit_read(batch)), None)
        return commit if isinstance(commit, SparkCommit) else None

    def offsets(self, batch: int) -> SparkOffsets | None:
        """Return the offsets of a batch, if they were read and can be."""
        offsets = self._read.get(b"offsets/%d" % batch)
        return offsets if isinstance(offsets, SparkOffsets) else None

    def _commit_read(self, batch: int) -> list[bytes]:
        """Return the name of the newest commit that is not after ``batch``, if there is one."""
        if batch not in self._commits:
            batch = max((number for number in self._commits if number < batch), default=-1)
        return [b"commits/%d" % batch] if batch >= 0 else []

    def _offsets_read(self, batch: int) -> list[int]:
        newest = self.under_way(batch)
        last = batch if newest is None else newest
        return [number for number in (last, last - 1) if number >= 0]


def _numbers(location: Location, log: bytes) -> Iterator[int]:
    for name in location.relative():
        number = name.removeprefix(log)
        if name.startswith(log) and number.isdigit():
            yield int(number)
