"""What a checkpoint format is to the rest of Holdfast: all that depends on which engine wrote a checkpoint.

A ``Format`` brings its conventions for names, and one or more layouts. A layout says what names mean and judges what it
knows; the drivers in ``reachability``, the daemon and Spark's jobs know only these interfaces. There are three:

- ``LocationLayout``: a directory shows by certain files in it to be a checkpoint location, and nothing outside refers into
  it. Each location is judged as a whole.
- ``GroupLayout``: names tell by themselves which group they belong to. Each group is judged as a whole.
- ``TreeLayout``: names tell by themselves what they are. Manifests below the root refer to files, of any job below the root;
  what none of them refers to is judged one by one. Formats that refer to each other's files have one layout together.

Everything here is pure: names, listings and manifests come in; plans go out. Names are bytes, relative to the root of a
listing, with ``/`` between their components. Layouts hold no state, and are sent to Spark's executors.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, BinaryIO, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.manifests import Manifest, MetadataReader
from holdfast.checkpoints.plans import Kept, Listed, PlanBuilder
from holdfast.checkpoints.references import Reference
from holdfast.zones import NameKind

UUID = rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

LOGS = "logs and schemas"
TEMPORARY = "temporary and checksums"
OTHER = "other"
"""Purposes that any format's files may have, in a report on usage."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that a grammar does not have: it is kept, whatever it is."""

    name: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """In a census: a checkpoint, a savepoint, a batch of a query, or what several of these share.

    ``name`` is what ``drop`` takes; of what can't be dropped by itself it is the directory. ``what`` is ``checkpoint``,
    ``savepoint``, ``batch``, ``shared`` or ``state``. Bytes are of what lies there, for a checkpoint of its exclusive files;
    ``newest_ns`` is when it was last written to.
    """

    name: bytes
    what: str
    is_complete: bool
    files: int
    size_bytes: int
    newest_ns: int

    @classmethod
    def of(cls, name: bytes, what: str, files: Sequence[Listed], *, is_complete: bool) -> Found:
        """Add up what the files have, of which there is at least one."""
        newest_ns = max(listed.mtime_ns for listed in files)
        return cls(name, what, is_complete, len(files), sum(listed.size_bytes for listed in files), newest_ns)


class Counted(NamedTuple):
    """A line of a census. Lines are sorted by job or location, then by number, then by name."""

    owner: bytes
    number: int
    found: Found


# --- checkpoint locations ---------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """A name shows that ``location`` is a checkpoint location, if names with all the layout's marks do."""

    location: bytes
    mark: str


class Batch(NamedTuple):
    """A batch of the query at a checkpoint location."""

    location: bytes
    number: int


class StatePartition(NamedTuple):
    """A file belongs to the state of one partition of one operator."""

    operator: int
    partition: int


class FinishedBatch(NamedTuple):
    """A file shows that a batch is finished: the query can go on from this version of its state."""

    version: int


class LocationLayout(ABC):
    """Directories that are judged as a whole."""

    title: str
    """What a location is called, for people."""
    named_by: str
    """How a checkpoint is named that is to be dropped, for people."""
    marks: frozenset[str]
    """A directory is a location if there is evidence of each of these."""
    purposes: tuple[str, ...]
    """What its files may be for, in a report on usage, beside ``LOGS``, ``TEMPORARY`` and ``OTHER``."""

    @abstractmethod
    def evidence(self, listed: Listed) -> Evidence | None:
        """Return what a name shows, by itself."""

    @abstractmethod
    def sweep(self, location: bytes, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan what may go of all that lies in ``location``, and in no location within it."""

    @abstractmethod
    def census(self, location: bytes, listing: Iterable[Listed]) -> Iterable[Counted]:
        """Count the batches of a location, and its state."""

    @abstractmethod
    def batch_of(self, name: bytes) -> Batch | None:
        """Return the batch that somebody has named to be dropped; None for other names."""

    @abstractmethod
    def batches_to_drop(self, listing: Iterable[Listed], number: int, *, all_before: bool) -> tuple[bytes, ...]:
        """Return the names of the batches that go with ``number``; the location is the root of ``listing``.

        Raises ``PlanError`` when there is no such batch, or it can't go alone.
        """

    @abstractmethod
    def drop(self, location: bytes, listing: Iterable[Listed], last: int, builder: PlanBuilder) -> Asking[None]:
        """Plan to drop all batches up to ``last``. Raises ``PlanError`` when one of them is needed."""

    @abstractmethod
    def purpose_of(self, name: bytes) -> str:
        """Say what a file is for; ``name`` is relative to the location."""

    @abstractmethod
    def state_of(self, name: bytes) -> StatePartition | FinishedBatch | None:
        """Say what a file, by its name relative to the location, is to a query that is restarted."""

    @abstractmethod
    def state_to_read(self, location: bytes, files: Sequence[Listed], version: int) -> Asking[list[bytes]]:
        """Return the names of those files of one partition that a query reads first when it goes on from ``version``."""


# --- groups -----------------------------------------------------------------------------------------------------------


class GroupLayout(ABC):
    """Files outside of locations and trees that are judged together with the others of their group."""

    @abstractmethod
    def group_of(self, listed: Listed) -> bytes | None:
        """Return the group of a name; None for a name that is not of this layout."""

    @abstractmethod
    def sweep(self, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan what may go of a group."""


# --- trees ------------------------------------------------------------------------------------------------------------


class Role(enum.Enum):
    """What a name of a tree is to a sweep."""

    MANIFEST = "manifest"
    """Stays, and refers to others."""
    CANDIDATE = "candidate"
    """May go, if nothing refers to it."""
    LASTING = "lasting"
    """Stays, whatever refers to it."""
    DIRECTORY = "directory"
    """May go when it is empty."""


class TreeName(Protocol):
    """What a name says, in a tree."""

    @property
    def name(self) -> bytes:
        """The whole name."""
        ...

    @property
    def role(self) -> Role:
        """What it is to a sweep."""
        ...

    @property
    def job(self) -> bytes:
        """The directory of the job that it belongs to, ``b""`` for the root."""
        ...

    @property
    def checkpoint(self) -> int | None:
        """The number of the checkpoint that it belongs to, if it belongs to one only."""
        ...

    @property
    def checkpoint_name(self) -> bytes:
        """The name of that checkpoint's directory, by which it is dropped."""
        ...

    @property
    def completes(self) -> bool:
        """Whether its checkpoint is complete because this file is there."""
        ...

    @property
    def is_appended(self) -> bool:
        """Whether the file is written to over time, so that the newest file in its directory counts for its age."""
        ...


N = TypeVar("N", bound=TreeName)


class Completions:
    """The complete checkpoints of a job by their numbers, with the times at which they were completed."""

    def __init__(self, times_ns: Mapping[int, int] | None = None) -> None:
        self.times_ns = dict(times_ns or {})
        self._numbers: list[int] = []
        self._latest_ns: list[int] = []

    def after(self, listed: Listed, above: int = -1) -> bool:
        """Whether a checkpoint above the given one was completed after ``listed`` was written."""
        if len(self._numbers) != len(self.times_ns):
            self._numbers = sorted(self.times_ns)
            times = (self.times_ns[number] for number in reversed(self._numbers))
            self._latest_ns = list(accumulate(times, max))[::-1]
        index = bisect_right(self._numbers, above)
        return index < len(self._numbers) and self._latest_ns[index] > listed.mtime_ns


class TreeLayout(ABC, Generic[N]):
    """Files that are needed as long as a manifest refers to them."""

    named_by: str
    """How a checkpoint is named that is to be dropped, for people."""
    manifest: str
    """What its manifests are called, for people."""
    purposes: tuple[str, ...]
    """What its files may be for, in a report on usage, beside ``LOGS``, ``TEMPORARY`` and ``OTHER``."""

    @abstractmethod
    def parse(self, listed: Listed) -> N | None:
        """Say what a name is; None for a name that is not of this layout."""

    @abstractmethod
    def checkpoint_named(self, name: bytes) -> N | None:
        """Return the manifest of the checkpoint that somebody has named to be dropped; None for other names."""

    @abstractmethod
    def references_of(self, name: N, manifest: Manifest) -> Collection[Reference] | Kept:
        """Return what a manifest refers to; or why nothing of this layout below the root can be judged."""

    @abstractmethod
    def sweep_unreferenced(
        self, listed: Listed, name: N, completions: Completions, silent_since_ns: int, builder: PlanBuilder
    ) -> None:
        """Plan what becomes of a candidate that nothing refers to.

        ``completions`` are its job's. ``silent_since_ns``, of what ``is_appended``: when a file beside it was last written.
        """

    @abstractmethod
    def is_superfluous(self, listed: Listed, name: N, completions: Completions, builder: PlanBuilder) -> bool:
        """Whether nothing is going to be written into a directory any more."""

    @abstractmethod
    def about(self, name: N) -> str:
        """Say for people what a name belongs to."""

    @abstractmethod
    def census(self, files: Iterable[tuple[Listed, N]]) -> Iterable[Counted]:
        """Count the checkpoints of all jobs, and what they share."""

    @abstractmethod
    def usage_of(self, name: N) -> tuple[bytes, str] | None:
        """Say whose a file is, and what it is for; None where the name does not tell."""


# --- the format -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchReferences:
    """The file that was opened names others, which will be read next. ``names`` returns them, relative to its directory.

    It takes the file and its size, and returns nothing for a file that it can't read. Raises only the file's ``OSError``.
    """

    names: Callable[[BinaryIO, int], list[bytes]]


@dataclass(frozen=True, slots=True)
class ListDirectories:
    """The directories ``names`` beside the file that was opened will be listed next, if ``evidence`` is one of them."""

    names: tuple[bytes, ...]
    evidence: bytes


ReadAhead: TypeAlias = FetchReferences | ListDirectories


@dataclass(frozen=True)
class Format:
    """A checkpoint format.

    - ``name_kinds``: patterns of names, for ``zones.NameTable``;
    - ``temporary_names`` match the last component of a name that is on its way to another; the first group is that;
    - ``logs`` match directories whose write-once names one writer makes; the first group is the checkpoint;
    - ``read_ahead`` says what an open of a name, by its last component, leads to;
    - ``metadata`` reads the manifests of ``tree``.
    """

    name: str
    name_kinds: Mapping[NameKind, Sequence[str]] = field(default_factory=dict)
    temporary_names: tuple[re.Pattern[bytes], ...] = ()
    logs: tuple[re.Pattern[bytes], ...] = ()
    read_ahead: Callable[[bytes], ReadAhead | None] | None = None
    locations: LocationLayout | None = None
    groups: GroupLayout | None = None
    tree: TreeLayout[Any] | None = None
    metadata: MetadataReader | None = None
