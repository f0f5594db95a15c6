"""The layout of files that are needed as long as a manifest refers to them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.checkpoints.formats.interface.terms import Counted
from holdfast.checkpoints.manifests import Manifest
from holdfast.checkpoints.plans import Kept, Listed, PlanBuilder
from holdfast.checkpoints.references import Reference


class Role(enum.Enum):
    """The role of a name of a tree in a sweep."""

    MANIFEST = "manifest"
    """Stays, and refers to others."""
    CANDIDATE = "candidate"
    """May go, if nothing refers to it."""
    LASTING = "lasting"
    """Stays, whatever refers to it."""
    DIRECTORY = "directory"
    """May go when it is empty."""


class TreeName(Protocol):
    """The meaning of a name in a tree."""

    @property
    def name(self) -> bytes:
        """The whole name."""
        ...

    @property
    def role(self) -> Role:
        """Its role in a sweep."""
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
        """True if its checkpoint is complete because this file is there."""
        ...

    @property
    def is_appended(self) -> bool:
        """True if the file is appended to over time: then its age is that of the newest file in its directory."""
        ...


class Retained(NamedTuple):
    """A checkpoint or savepoint: the name that users give it, ``checkpoint`` or ``savepoint``."""

    name: bytes
    what: str


N = TypeVar("N", bound=TreeName)


class Completions:
    """The complete checkpoints of a job by their numbers, with the times at which they were completed."""

    def __init__(self, times_ns: Mapping[int, int] | None = None) -> None:
        self.times_ns = dict(times_ns or {})
        self._numbers: list[int] = []
        self._latest_ns: list[int] = []

    def after(self, listed: Listed, above: int = -1) -> bool:
        """Return whether a checkpoint above number ``above`` was completed after ``listed`` was written."""
        if len(self._numbers) != len(self.times_ns):
            self._numbers = sorted(self.times_ns)
            times = (self.times_ns[number] for number in reversed(self._numbers))
            self._latest_ns = list(accumulate(times, max))[::-1]
        index = bisect_right(self._numbers, above)
        return index < len(self._numbers) and self._latest_ns[index] > listed.mtime_ns


class TreeLayout(ABC, Generic[N]):
    """Files that are needed as long as a manifest refers to them."""

    named_by: str
    """The names by which users drop a checkpoint, described for people."""
    manifest: str
    """The word for its manifests, for people."""
    can_be_copied: str
    """The advice for people whose checkpoint names files by absolute paths: what to copy in its place."""
    purposes: tuple[str, ...]
    """The purposes of its files in a report on usage, besides ``LOGS``, ``TEMPORARY`` and ``OTHER``."""

    @abstractmethod
    def parse(self, listed: Listed) -> N | None:
        """Say what a name is; None for a name that is not of this layout."""

    @abstractmethod
    def checkpoint_named(self, name: bytes) -> N | None:
        """Return the manifest of the checkpoint that a user means by ``name``; None for other names."""

    @abstractmethod
    def references_of(self, name: N, manifest: Manifest) -> Collection[Reference] | Kept:
        """Return what a manifest refers to; or why nothing of this layout below the root can be judged."""

    @abstractmethod
    def sweep_unreferenced(
        self, listed: Listed, name: N, completions: Completions, silent_since_ns: int, builder: PlanBuilder
    ) -> None:
        """Plan what becomes of a candidate that nothing refers to.

        ``completions`` are those of its job. For a name that ``is_appended``, ``silent_since_ns`` is the time of the last
        write to a file beside it.
        """

    @abstractmethod
    def is_superfluous(self, listed: Listed, name: N, completions: Completions, builder: PlanBuilder) -> bool:
        """Return whether nothing is going to be written into a directory any more."""

    @abstractmethod
    def restorable(self, name: N, manifest: Manifest | None) -> Retained | None:
        """Return the checkpoint or savepoint that a manifest describes; None when it describes none.

        ``manifest`` is the content that was read, if any was.
        """

    @abstractmethod
    def about(self, name: N) -> str:
        """Say for people what a name belongs to."""

    @abstractmethod
    def census(self, files: Iterable[tuple[Listed, N]]) -> Iterable[Counted]:
        """Count the checkpoints of all jobs, and what they share."""

    @abstractmethod
    def usage_of(self, name: N) -> tuple[bytes, str] | None:
        """Return the owner of a file and its purpose; None where the name does not tell."""
