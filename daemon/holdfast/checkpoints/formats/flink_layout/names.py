"""The names of Flink's checkpoints: its own layout, and the one of FLINK-10930.

A grammar: names in, typed entries out; what it does not know is ``Unknown``, never an error. Names are bytes, relative to
any directory above the jobs, with ``/`` between their components; which directories hold jobs is not for a single name
to say. In a job:

- ``chk-<n>/``: ``_metadata`` and, in Flink's own layout, files exclusive to checkpoint n, named by a UUID;
- ``exclusive/chk-<n>-<name>`` in the layout of FLINK-10930, which asks for the checkpoint's id in the file's name: there
  ``chk-<n>/`` holds metadata only, and a late file tells by itself which checkpoint it came too late for;
- ``shared/<uuid>``, in Holdfast's own checkpoints also ``shared/<digest>``, and with file merging (FLIP-306)
  ``shared/job_…_op_…_<subtask>_<parallelism>/<uuid>``;
- ``taskowned/…`` and ``dstl/…`` (the changelog backend's): written and deleted by the TaskManagers alone.

Beside jobs, savepoints: ``savepoint-<6 hex>-<12 hex>/``. Sources: F ``AbstractFsCheckpointStorageAccess``,
``FsCheckpointStorageLocation``, ``FileMergingSnapshotManager``, ``FsStateChangelogStorage`` (Flink 2.3).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Self

from holdfast.checkpoints.formats.interface import UUID, Role, Unknown

METADATA_NAME = b"_metadata"


class FlinkKind(enum.Enum):
    """The kind of file or directory that a name stands for, with its role in a sweep."""

    role: Role

    def __new__(cls, value: str, role: Role) -> Self:
        """Make the member with this value."""
        kind = object.__new__(cls)
        kind._value_ = value
        kind.role = role
        return kind

    METADATA = "metadata", Role.MANIFEST
    """The manifest of a checkpoint, which is complete as soon as this file is there."""
    UNFINISHED_METADATA = "unfinished metadata", Role.CANDIDATE
    """A file that will be renamed to ``_metadata`` (RecoverableWriter on local file systems)."""
    EXCLUSIVE = "exclusive", Role.CANDIDATE
    SHARED = "shared", Role.CANDIDATE
    SHARED_SEGMENTS = "shared segments", Role.CANDIDATE
    """A physical file of file merging: appended to over time, owned by a TaskManager."""
    TASK_OWNED = "task-owned", Role.LASTING
    SAVEPOINT = "savepoint", Role.LASTING
    """Anything in a savepoint's directory."""
    SAVEPOINT_METADATA = "savepoint metadata", Role.MANIFEST
    OTHER_METADATA = "other metadata", Role.MANIFEST
    """A ``_metadata`` in a directory of another name: a checkpoint or savepoint that was copied or renamed."""
    CHECKPOINT_DIRECTORY = "checkpoint directory", Role.DIRECTORY
    SEGMENTS_DIRECTORY = "segments directory", Role.DIRECTORY


@dataclass(frozen=True, slots=True)
class FlinkName:
    """A parsed name: its kind, its job's directory (``job``, ``b""`` for the root), and the number of its checkpoint.

    ``directory`` is the component below the job that the file is in; for merged files it is the directory of their subtask.
    """

    name: bytes
    kind: FlinkKind
    job: bytes
    directory: bytes
    checkpoint: int | None = None

    @property
    def checkpoint_name(self) -> bytes:
        """The name of the checkpoint's directory, for a file that belongs to one checkpoint."""
        own = b"chk-%d" % self.checkpoint if self.checkpoint is not None else self.directory
        return b"%s/%s" % (self.job, own) if self.job else own

    @property
    def role(self) -> Role:
        """Its role in a sweep."""
        return self.kind.role

    @property
    def completes(self) -> bool:
        """True if its checkpoint is complete because this file is there."""
        return self.kind is FlinkKind.METADATA

    @property
    def is_appended(self) -> bool:
        """True if TaskManagers append to it."""
        return self.kind is FlinkKind.SHARED_SEGMENTS


_UUID = re.compile(UUID)
_SHARED = re.compile(rb"%s|[0-9a-f]{32}" % _UUID.pattern)
_CHECKPOINT = re.compile(rb"chk-(0|[1-9][0-9]{0,18})")
_EXCLUSIVE = re.compile(_CHECKPOINT.pattern + rb"-.+", re.DOTALL)
_SEGMENTS = re.compile(rb"job_.+_op_.+_[0-9]+_[0-9]+", re.DOTALL)
_SAVEPOINT = re.compile(rb"savepoint-[0-9a-f]{6}-[0-9a-f]{12}")
_UNFINISHED = re.compile(rb"\._metadata\.inprogress\..+", re.DOTALL)


def parse_flink(name: bytes) -> FlinkName | Unknown:
    """Say what the file ``name`` is."""
    *above, last = name.split(b"/")
    place = _inside(above)
    if place is not None:
        kind, index = place
        if kind is FlinkKind.SAVEPOINT and last == METADATA_NAME and index == len(above) - 1:
            kind = FlinkKind.SAVEPOINT_METADATA
        return _entry(name, kind, above, index)
    parent = above[-1] if above else b""
    number = _CHECKPOINT.fullmatch(parent)
    if number is not None:
        kind_in_checkpoint = _in_checkpoint(last)
        if kind_in_checkpoint is None:
            return Unknown(name)
        return _entry(name, kind_in_checkpoint, above, len(above) - 1, number)
    if parent == b"exclusive":
        number = _EXCLUSIVE.fullmatch(last)
        return Unknown(name) if number is None else _entry(name, FlinkKind.EXCLUSIVE, above, len(above) - 1, number)
    if parent == b"shared" and _SHARED.fullmatch(last):
        return _entry(name, FlinkKind.SHARED, above, len(above) - 1)
    if above[-2:-1] == [b"shared"] and _SEGMENTS.fullmatch(parent) and _UUID.fullmatch(last):
        return _entry(name, FlinkKind.SHARED_SEGMENTS, above, len(above) - 2)
    if last == METADATA_NAME:
        return _entry(name, FlinkKind.OTHER_METADATA, above, max(0, len(above) - 1))
    return Unknown(name)


def parse_flink_directory(name: bytes) -> FlinkName | Unknown:
    """Say what the directory ``name`` is; only those that the sweep may remove are known."""
    above = name.split(b"/")
    if _inside(above) is not None:
        return Unknown(name)
    number = _CHECKPOINT.fullmatch(above[-1])
    if number is not None:
        return _entry(name, FlinkKind.CHECKPOINT_DIRECTORY, above, len(above) - 1, number)
    if above[-2:-1] == [b"shared"] and _SEGMENTS.fullmatch(above[-1]):
        return _entry(name, FlinkKind.SEGMENTS_DIRECTORY, above, len(above) - 2)
    return Unknown(name)


def _inside(above: list[bytes]) -> tuple[FlinkKind, int] | None:
    """Find the outermost directory that makes everything below it the TaskManagers' or a savepoint's."""
    for index, component in enumerate(above):
        if component in (b"taskowned", b"dstl"):
            return FlinkKind.TASK_OWNED, index
        if component.startswith(b"savepoint-") and _SAVEPOINT.fullmatch(component):
            return FlinkKind.SAVEPOINT, index
    return None


def _in_checkpoint(last: bytes) -> FlinkKind | None:
    if last == METADATA_NAME:
        return FlinkKind.METADATA
    if _UUID.fullmatch(last):
        return FlinkKind.EXCLUSIVE
    return FlinkKind.UNFINISHED_METADATA if _UNFINISHED.fullmatch(last) else None


def _entry(name: bytes, kind: FlinkKind, above: list[bytes], index: int, number: re.Match[bytes] | None = None) -> FlinkName:
    job, directory = b"/".join(above[:index]), b"/".join(above[index:])
    return FlinkName(name, kind, job, directory, None if number is None else int(number[1]))
