"""Everything of Flink's below one root: which files no metadata of any job or savepoint refers to.

Jobs refer to each other's files: with CLAIM a job goes on from another's checkpoint, and its first ones share that one's
files. So all metadata below the root is read before anything is judged, and a single one that can't be read stops the
judgement of the whole root. References are compared by their last component, a UUID: metadata holds absolute URIs, and the
root may be mounted, copied or reached by another name now; and names that were meant relative to a savepoint may be read as
relative to a checkpoint (FLINK-39964).

Never judged: ``taskowned/`` and ``dstl/``, savepoints, unknown names, and anything outside a job's directory.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from holdfast.checkpoints.layouts import FlinkKind, FlinkName
from holdfast.checkpoints.manifests import (
    FlinkMetadata,
    Manifest,
    ManifestKind,
    OwnMetadata,
    Reference,
    ReferenceKind,
    Trouble,
    Unreadable,
)
from holdfast.checkpoints.reachability.asking import Asking, Wanted
from holdfast.checkpoints.reachability.plan import Kept, Listed, Phase, PlanBuilder, Reason

METADATA = (FlinkKind.METADATA, FlinkKind.SAVEPOINT_METADATA, FlinkKind.OTHER_METADATA)
JUDGED = (FlinkKind.EXCLUSIVE, FlinkKind.SHARED, FlinkKind.SHARED_SEGMENTS)
_JOB_ID = re.compile(rb"(?:.*/)?[0-9a-f]{32}", re.DOTALL)


class Job:
    """What is known of a job's directory: its complete checkpoints, with the times at which they were completed."""

    def __init__(self) -> None:
        self.completed: dict[int, int] = {}
        self._numbers: list[int] = []
        self._latest_ns: list[int] = []

    def completed_after(self, listed: Listed, above: int = -1) -> bool:
        """Whether a checkpoint above the given one was completed after ``listed`` was written."""
        if len(self._numbers) != len(self.completed):
            self._numbers = sorted(self.completed)
            times = (self.completed[number] for number in reversed(self._numbers))
            self._latest_ns = list(accumulate(times, max))[::-1]
        index = bisect_right(self._numbers, above)
        return index < len(self._numbers) and self._latest_ns[index] > listed.mtime_ns


@dataclass(slots=True)
class Tree:
    """What was listed below a root."""

    files: list[tuple[Listed, FlinkName]] = field(default_factory=list)
    directories: list[tuple[Listed, FlinkName]] = field(default_factory=list)
    jobs: dict[bytes, Job] = field(default_factory=dict)

    def add(self, listed: Listed, name: FlinkName) -> None:
        """Take up a file or directory."""
        if listed.is_directory:
            self.directories.append((listed, name))
            return
        self.files.append((listed, name))
        if name.kind is FlinkKind.METADATA and name.checkpoint is not None:
            self.jobs.setdefault(name.job, Job()).completed[name.checkpoint] = listed.mtime_ns

    def job(self, name: FlinkName) -> Job | None:
        """Return the job of ``name``; None where nothing shows that its directory is a job's."""
        return job_of(name, self.jobs.get(name.job))


def job_of(name: FlinkName, known: Job | None) -> Job | None:
    """Return the job of ``name``, which is ``known`` by its complete checkpoints or shows by its directory's name."""
    return Job() if known is None and _JOB_ID.fullmatch(name.job) else known


@dataclass(frozen=True, slots=True)
class Reached:
    """The last components of all that is referred to."""

    files: frozenset[bytes]
    directories: frozenset[bytes]

    def reaches(self, name: FlinkName) -> bool:
        """Whether ``name`` is referred to, or stands in a directory that is."""
        *directories, last = name.name.split(b"/")
        return last in self.files or not self.directories.isdisjoint(directories)


def plan_tree(tree: Tree, builder: PlanBuilder) -> Asking[None]:
    """Plan what may go of Flink's below a root."""
    judged = [(listed, name) for listed, name in tree.files if name.kind in JUDGED]
    reached = yield from _reached(tree, frozenset(), builder)
    if reached is not None:
        _plan_unreached(tree, judged, reached, builder)
    builder.retain(listed.name for listed, name in tree.files if name.kind not in (*JUDGED, FlinkKind.UNFINISHED_METADATA))
    for listed, name in tree.files:
        if name.kind is FlinkKind.UNFINISHED_METADATA:
            plan_unfinished(listed, name, builder)


def plan_unfinished(listed: Listed, name: FlinkName, builder: PlanBuilder) -> None:
    """Plan to remove metadata that was never finished."""
    if builder.is_old(listed):
        builder.add(listed, Reason.TEMPORARY, about(name))


def plan_drop(tree: Tree, dropped: Collection[bytes], builder: PlanBuilder) -> Asking[None]:
    """Plan to drop checkpoints, by the names of their directories: their metadata first, then all that only they reach.

    Age does not matter, for it was asked for. What they share with others, or may have shared, is left for a sweep.
    """
    reached = yield from _reached(tree, dropped, builder)
    if reached is None:
        return
    for listed, name in tree.files:
        if name.checkpoint_name in dropped and name.checkpoint is not None:
            if name.kind is FlinkKind.METADATA:
                builder.add(listed, Reason.DROPPED, about(name), Phase.MANIFEST)
            elif not reached.reaches(name):
                builder.add(listed, Reason.DROPPED, about(name))


def _reached(tree: Tree, dropped: Collection[bytes], builder: PlanBuilder) -> Asking[Reached | None]:
    """Read all metadata but that of the dropped checkpoints. None when a single one can't be read."""
    metadata = [
        (listed, name) for listed, name in tree.files if name.kind in METADATA and name.checkpoint_name not in dropped
    ]
    answers = yield [Wanted(listed.name, ManifestKind.CHECKPOINT, listed.size_bytes) for listed, _ in metadata]
    files: set[bytes] = set()
    directories: set[bytes] = set()
    whole = True
    for listed, name in metadata:
        found = references_of(name, answers[listed.name])
        if isinstance(found, Kept):
            builder.keep(found)
            whole = False
        for reference in () if isinstance(found, Kept) else found:
            of_kind = directories if reference.kind is ReferenceKind.DIRECTORY else files
            of_kind.add(reference.last_component)
    reached = Reached(frozenset(files), frozenset(directories))
    builder.retain(listed.name for listed, name in tree.files if not whole or reached.reaches(name))
    return reached if whole else None


def references_of(name: FlinkName, answer: Manifest) -> Collection[Reference] | Kept:
    """Return what the metadata ``name`` refers to, or why nothing below the root can be judged."""
    if isinstance(answer, FlinkMetadata | OwnMetadata):
        return answer.references
    if isinstance(answer, Unreadable) and not _is_nobodys(answer, name):
        return Kept(name.name, f"{answer}; nothing of Flink's below the root is judged", answer.trouble)
    return ()


def _is_nobodys(answer: Unreadable, name: FlinkName) -> bool:
    """Whether a ``_metadata`` outside checkpoints and savepoints is another program's, Parquet's for one."""
    return answer.trouble is Trouble.FOREIGN and name.kind is FlinkKind.OTHER_METADATA


def _plan_unreached(tree: Tree, judged: Iterable[tuple[Listed, FlinkName]], reached: Reached, builder: PlanBuilder) -> None:
    silent_since: defaultdict[bytes, int] = defaultdict(int)
    for listed, _ in judged:
        directory = listed.name.rpartition(b"/")[0]
        silent_since[directory] = max(silent_since[directory], listed.mtime_ns)
    for listed, name in judged:
        if not reached.reaches(name):
            plan_unreached(listed, name, tree.job(name), silent_since[listed.name.rpartition(b"/")[0]], builder)


def plan_unreached(listed: Listed, name: FlinkName, job: Job | None, silent_since_ns: int, builder: PlanBuilder) -> None:
    """Plan what becomes of a file that nobody refers to. ``silent_since_ns``: when a file beside it was last written."""
    if job is None or not builder.is_old(listed):
        return
    if name.kind is FlinkKind.EXCLUSIVE:
        _plan_exclusive(listed, name, job, builder)
    elif name.kind is FlinkKind.SHARED:
        if job.completed_after(listed) or builder.is_abandoned(listed):
            builder.add(listed, Reason.UNREFERENCED, about(name))
    elif builder.is_abandoned(Listed(b"", 0, silent_since_ns)):
        # A TaskManager appends to these, and may hold one that is not referred to at the moment.
        builder.add(listed, Reason.UNREFERENCED, about(name))


def _plan_exclusive(listed: Listed, name: FlinkName, job: Job, builder: PlanBuilder) -> None:
    number = name.checkpoint if name.checkpoint is not None else -1
    if number in job.completed:
        builder.add(listed, Reason.FAILED_ATTEMPT, f"not part of {about(name)}")
    elif job.completed_after(listed, above=number):
        builder.add(listed, Reason.EXPIRED_CHECKPOINT, about(name))
    elif builder.is_abandoned(listed):
        builder.add(listed, Reason.FAILED_ATTEMPT, f"{about(name)}, which was never completed")


def superfluous_directories(tree: Tree, builder: PlanBuilder) -> list[tuple[Listed, str]]:
    """Return the directories that nobody is going to write into any more, each with what it was for."""
    return [
        (listed, about(name)) for listed, name in tree.directories if is_superfluous(listed, name, tree.job(name), builder)
    ]


def is_superfluous(listed: Listed, name: FlinkName, job: Job | None, builder: PlanBuilder) -> bool:
    """Whether nobody is going to write into the directory ``listed`` any more."""
    if job is None or not builder.is_old(listed):
        return False
    is_over = name.checkpoint is not None and job.completed_after(listed, above=name.checkpoint)
    return is_over or builder.is_abandoned(listed)


def about(name: FlinkName) -> str:
    """Say for people what ``name`` belongs to."""
    job = name.job.decode("utf-8", "backslashreplace")
    where = f" of {job}" if job else ""
    if name.checkpoint is not None:
        return f"checkpoint {name.checkpoint}{where}"
    return f"{name.directory.decode('utf-8', 'backslashreplace')}{where}"
