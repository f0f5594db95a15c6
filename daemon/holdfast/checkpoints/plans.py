"""The model of a plan: what would be deleted, and why. Nothing is deleted here.

A plan is made of one listing, and the store changes before the plan is executed. So an execution makes a second plan from a
new listing, and deletes only what stands in both with the same size and time (``sweeps.revalidation``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.checkpoints.manifests import Trouble
from holdfast.errors import ConfigurationError

_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class Listed:
    """One thing in a listing. ``name`` is relative to the root, with ``/`` between components and none at its ends.

    Stores of objects list no directories; where there are some (``is_directory``), empty ones can be removed.
    """

    name: bytes
    size_bytes: int
    mtime_ns: int
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The ages that things must have before they are deleted. Raises ``ConfigurationError`` for impossible values.

    Nothing younger than ``grace_ns`` is touched. This has to be longer than a listing, an upload and a checkpoint may take,
    because what is written for a checkpoint is referred to only when that is complete. What may still belong to a checkpoint
    under way, because no later one of the job is complete, is left alone for ``abandoned_ns``. ``min_batches_to_retain`` is
    Spark's ``spark.sql.streaming.minBatchesToRetain``.
    """

    grace_ns: int = _DAY_NS
    abandoned_ns: int = 7 * _DAY_NS
    min_batches_to_retain: int = 100

    def __post_init__(self) -> None:
        if self.grace_ns < 0 or self.min_batches_to_retain < 0:
            raise ConfigurationError("a grace age and a number of batches to retain can't be negative")
        if self.abandoned_ns < self.grace_ns:
            raise ConfigurationError("a checkpoint under way can't be abandoned before the grace age")


class Reason(enum.Enum):
    """The reason why something would be deleted."""

    DROPPED = "part of a dropped checkpoint"
    EXPIRED_CHECKPOINT = "late file of an expired checkpoint"
    FAILED_ATTEMPT = "file of a failed attempt"
    EXPIRED_VERSION = "state that no retained batch needs"
    UNREFERENCED = "shared file that nobody refers to"
    REWOUND = "written after the batch that is gone back to"
    SET_ASIDE = "set aside by a rewind"
    TEMPORARY = "temporary file of a dead writer"
    ORPHANED_CHECKSUM = "checksum of a file that is not there"
    STAGED_UPLOAD = "upload that was never finished"
    EMPTY_DIRECTORY = "empty directory"
    DEAD_PROCESS = "directory of a process that has ended"
    ABORTED_TRANSFER = "transfer that was never finished"
    UNUSED_BLOB = "copy of a blob that nobody uses any more"
    OLD_LOCAL_STATE = "local state of a checkpoint that is over"


class Phase(enum.IntEnum):
    """The order of deletion, in which a sweep that is cut off leaves nothing that looks whole and is not."""

    MANIFEST = 0
    FILE = 1
    CHECKSUM = 2
    DIRECTORY = 3


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One thing that would be deleted: its name, why (``about`` names the checkpoint, version or file), its size and age."""

    name: bytes
    reason: Reason
    about: str
    size_bytes: int
    mtime_ns: int
    age_ns: int
    phase: Phase = Phase.FILE


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that could not be judged: all that ``scope`` stands for stays, and why.

    ``scope`` is a name: a manifest that can't be read, a store's directory, ``b""`` for the whole root.
    """

    scope: bytes
    why: str
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The things to delete, in this order; things that could not be judged; and names that a retained checkpoint reaches."""

    entries: tuple[PlanEntry, ...] = ()
    kept: tuple[Kept, ...] = ()
    retained: frozenset[bytes] = field(default=frozenset(), repr=False)


class PlanBuilder:
    """Collects a plan: each name once, in the right order at the end."""

    def __init__(self, policy: Policy, now_ns: int) -> None:
        self.policy = policy
        self.now_ns = now_ns
        self._entries: dict[bytes, PlanEntry] = {}
        self._kept: list[Kept] = []
        self._retained: set[bytes] = set()

    def age_ns(self, listed: Listed) -> int:
        """Return the age of ``listed`` by the store's clock, in ns; negative if it was written after ``now_ns``."""
        return self.now_ns - listed.mtime_ns

    def is_old(self, listed: Listed) -> bool:
        """Return whether the grace age has passed."""
        return self.age_ns(listed) >= self.policy.grace_ns

    def is_abandoned(self, listed: Listed) -> bool:
        """Return whether it is older than any checkpoint that may be under way."""
        return self.age_ns(listed) >= self.policy.abandoned_ns

    def add(self, listed: Listed, reason: Reason, about: str, phase: Phase = Phase.FILE) -> None:
        """Plan to remove ``listed``."""
        entry = PlanEntry(listed.name, reason, about, listed.size_bytes, listed.mtime_ns, self.age_ns(listed), phase)
        self._entries.setdefault(listed.name, entry)

    def keep(self, kept: Kept) -> None:
        """Note what could not be judged."""
        self._kept.append(kept)

    def retain(self, names: Iterable[bytes]) -> None:
        """Note what a retained checkpoint reaches."""
        self._retained.update(names)

    def reason_of(self, name: bytes) -> Reason | None:
        """Return why ``name`` would be deleted; None when it stays."""
        entry = self._entries.get(name)
        return entry.reason if entry else None

    def goes(self, name: bytes) -> bool:
        """Return whether ``name`` would be deleted: it was added, and nothing retained reaches it."""
        return name in self._entries and name not in self._retained

    def plan(self) -> Plan:
        """Return the plan. What is retained is never in it, whatever was added."""
        entries = [entry for name, entry in self._entries.items() if name not in self._retained]
        entries.sort(
            key=lambda entry: (entry.phase, -entry.name.count(b"/") if entry.phase is Phase.DIRECTORY else 0, entry.name)
        )
        return Plan(tuple(entries), tuple(self._kept), frozenset(self._retained))
