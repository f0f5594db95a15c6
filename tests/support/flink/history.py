"""Flink's jobs as they write and discard checkpoints, fail, are late and claim each other's, in a root in memory.

What each metadata refers to is remembered here, by those who write it: a sweep is judged by that, not by its own reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from tests.support.checkpoints.roots import Root, uuid
from tests.support.flink import metadata as flink_metadata


@dataclass
class Completed:
    metadata: bytes
    shared: set[bytes]
    exclusive: set[bytes]


@dataclass
class Attempt:
    number: int
    started_ns: int
    directory: bytes
    shared: set[bytes] = field(default_factory=set)
    exclusive: set[bytes] = field(default_factory=set)


@dataclass
class Job:
    name: str
    is_holdfasts_own: bool
    retained: int
    next_number: int = 1
    completed: list[Completed] = field(default_factory=list)
    attempt: Attempt | None = None
    is_running: bool = True
    is_over: bool = False
    """Another job goes on from it: it never runs again."""
    over_numbers: list[int] = field(default_factory=list)
    """Of checkpoints that are expired or have failed, for late files."""
    base: set[bytes] = field(default_factory=set)
    """The shared files that the next checkpoint may refer to."""


class World:
    """All jobs and savepoints below one root."""

    def __init__(self) -> None:
        self.root = Root()
        self.jobs: list[Job] = []
        self.savepoints: list[tuple[bytes, set[bytes]]] = []
        self.refers_to: dict[bytes, set[bytes]] = {}
        self.never: set[bytes] = set()
        """What no sweep may ever touch."""
        self._names = 0

    # --- what is true -------------------------------------------------------------------------------------------------

    def reachable(self) -> set[bytes]:
        """All that metadata which is there refers to, and that metadata itself."""
        there = self.refers_to.keys() & self.root.files.keys()
        return there.union(*(self.refers_to[name] for name in there)) & self.root.files.keys()

    def under_way(self) -> set[bytes]:
        """All that the checkpoints under way have written or will refer to."""
        attempts = [job.attempt for job in self.jobs if job.is_running and job.attempt is not None]
        names = {name for attempt in attempts for name in attempt.shared | attempt.exclusive | {attempt.directory}}
        return names & (self.root.files.keys() | self.root.directories.keys())

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def start(self, *, is_holdfasts_own: bool, retained: int) -> Job:
        job = Job(f"{len(self.jobs):032x}", is_holdfasts_own, retained)
        self.jobs.append(job)
        self.never.add(self.root.write(f"{job.name}/taskowned/{self._uuid()}"))
        return job

    def claim(self, source: Job, *, owns: bool) -> None:
        """A new job goes on from the newest checkpoint of one that has ended: CLAIM, or LEGACY without ownership."""
        newest = source.completed[-1]
        job = self.start(is_holdfasts_own=source.is_holdfasts_own, retained=source.retained)
        job.next_number = source.next_number
        job.base = set(newest.shared)
        source.is_over = True
        if owns:
            job.completed.append(newest)
            source.completed.remove(newest)

    def claim_savepoint(self, index: int) -> None:
        """CLAIM of a native savepoint: its files become shared ones, named relative to where they are not."""
        metadata, files = self.savepoints[index]
        job = self.start(is_holdfasts_own=False, retained=2)
        job.base = set(files)
        job.completed.append(Completed(metadata, set(), set()))  # its files are left to the job that claims them

    def begin(self, job: Job, shared: int, exclusive: int, forget: int) -> None:
        directory = self.root.mkdir(f"{job.name}/chk-{job.next_number}")
        attempt = Attempt(job.next_number, self.root.now_ns, directory)
        job.next_number += 1
        attempt.shared = set(sorted(job.base)[forget:])
        for _ in range(shared):
            attempt.shared.add(self.root.write(f"{job.name}/shared/{self._uuid()}"))
        for _ in range(exclusive):
            attempt.exclusive.add(self.root.write(self._exclusive_name(job, attempt.number)))
        job.attempt = attempt

    def complete(self, job: Job, *, discards_halfway: bool = False) -> None:
        attempt = job.attempt
        assert attempt is not None
        job.attempt = None
        metadata = self.root.write(f"{job.name}/chk-{attempt.number}/_metadata", self._metadata(job, attempt))
        self.refers_to[metadata] = attempt.shared | attempt.exclusive
        job.completed.append(Completed(metadata, attempt.shared, attempt.exclusive))
        job.base = set(attempt.shared)
        while len(job.completed) > job.retained:
            self._discard(job, job.completed.pop(0), halfway=discards_halfway)

    def fail(self, job: Job) -> None:
        """The JobManager deletes what it knows of the attempt; what the tasks wrote to ``shared/`` is forgotten."""
        attempt = job.attempt
        assert attempt is not None
        job.attempt = None
        job.over_numbers.append(attempt.number)
        self.root.delete(attempt.exclusive)
        self._remove_directory(job, attempt.number)

    def crash(self, job: Job) -> None:
        job.is_running = False
        job.attempt = None

    def restart(self, job: Job, *, forgets_its_number: bool) -> None:
        """Go on after a crash; a job with a fixed id that has lost its counter begins with the first free number."""
        job.is_running = True
        if forgets_its_number:
            while f"{job.name}/chk-{job.next_number - 1}".encode() not in self.root.directories and job.next_number > 1:
                job.next_number -= 1
        job.base = set(job.completed[-1].shared) if job.completed else set()

    def late_file(self, job: Job, index: int) -> None:
        number = job.over_numbers[index % len(job.over_numbers)]
        self.root.write(self._exclusive_name(job, number))
        self.root.mkdir(f"{job.name}/chk-{number}")

    def savepoint(self) -> None:
        directory = f"savepoint-{len(self.savepoints):06x}-0123456789ab"
        names = {self.root.write(f"{directory}/{self._uuid()}") for _ in range(2)}
        relatives = [name.rpartition(b"/")[2] for name in names]
        metadata = self.root.write(f"{directory}/_metadata", flink_metadata.with_files([], 1, relatives))
        self.refers_to[metadata] = names
        self.savepoints.append((metadata, names))
        self.never |= names

    def _discard(self, job: Job, completed: Completed, *, halfway: bool) -> None:
        self.root.delete([completed.metadata])
        number = completed.metadata.split(b"/")[-2].removeprefix(b"chk-")
        if number.isdigit():
            job.over_numbers.append(int(number))
        if not halfway:
            self.root.delete(completed.exclusive)
            still_used = {name for other in job.completed for name in other.shared} | job.base
            self.root.delete(name for name in completed.shared - still_used if name not in self.never)
            if number.isdigit():
                self._remove_directory(job, int(number))

    def _remove_directory(self, job: Job, number: int) -> None:
        directory = f"{job.name}/chk-{number}".encode()
        if not any(name.startswith(directory + b"/") for name in self.root.files):
            self.root.delete([directory])

    def _metadata(self, job: Job, attempt: Attempt) -> bytes:
        if job.is_holdfasts_own:
            names = sorted(attempt.shared | attempt.exclusive)
            files = tuple(OwnFile(name.decode(), 1, "") for name in names)
            return own_metadata(OwnMetadata(attempt.number, files))
        relatives = [name for name in attempt.exclusive | attempt.shared if name in self.never or name in attempt.exclusive]
        uris = [b"s3://bucket/prefix/" + name for name in attempt.shared - self.never]
        return flink_metadata.with_files(uris, attempt.number, [name.rpartition(b"/")[2] for name in relatives])

    def _exclusive_name(self, job: Job, number: int) -> str:
        if job.is_holdfasts_own:
            return f"{job.name}/exclusive/chk-{number}-{self._uuid()}"
        return f"{job.name}/chk-{number}/{self._uuid()}"

    def _uuid(self) -> str:
        self._names += 1
        return uuid(self._names)
