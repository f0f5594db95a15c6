"""Layouts that are judged as a whole: checkpoint locations, and groups of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface.terms import Counted, EngineVersion, Restore
from holdfast.checkpoints.plans import Listed, PlanBuilder


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


class Copied(NamedTuple):
    """The files that a copy of a location takes: ``files`` as they are, ``rewritten`` with the copy's paths (``moved``)."""

    files: list[Listed]
    rewritten: list[Listed]


class LocationLayout(ABC):
    """Directories that are judged as a whole."""

    title: str
    """The word for such a location, for people."""
    named_by: str
    """The names by which users drop a checkpoint, described for people."""
    marks: frozenset[str]
    """A directory is a location if there is evidence of each of these."""
    lasting_marks: frozenset[str]
    """The marks that are enough to recognize a location that has lost others, when somebody asks what can be restored."""
    purposes: tuple[str, ...]
    """The purposes of its files in a report on usage, besides ``LOGS``, ``TEMPORARY`` and ``OTHER``."""

    @abstractmethod
    def evidence(self, listed: Listed) -> Evidence | None:
        """Return what a name shows, by itself."""

    @abstractmethod
    def sweep(self, location: bytes, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan what can be deleted of all that lies in ``location``, and in no location within it."""

    @abstractmethod
    def census(self, location: bytes, listing: Iterable[Listed]) -> Iterable[Counted]:
        """Count the batches of a location, and its state."""

    @abstractmethod
    def batch_of(self, name: bytes) -> Batch | None:
        """Return the batch that a user means by ``name``; None for other names."""

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

    @abstractmethod
    def restores(
        self,
        location: bytes,
        listing: Iterable[Listed],
        batch: int | None,
        spoilt: Collection[bytes],
        engine: EngineVersion | None = None,
    ) -> Asking[list[Restore]]:
        """Say of each retained batch, in rising order, or of ``batch`` alone, whether a restart from it finds all it reads.

        ``spoilt`` are names of objects whose bytes are known to be others than they should. ``engine`` is the version that
        is to restart (None: the newest). Raises ``PlanError`` when there is no such batch.
        """

    entry: bytes
    """The file that makes a directory a location, relative to it: a copy gets it last."""
    set_aside: bytes
    """The directory in a location, relative to it, in which rewinds keep what they have taken away."""

    @abstractmethod
    def later(self, location: bytes, listing: Iterable[Listed], batch: int) -> list[list[Listed]]:
        """Return what batches after ``batch`` have left, in the order in which it goes: all of a step before the next.

        Cut off anywhere, a restart goes on from the newest batch or from ``batch``, or fails. Raises ``PlanError`` when
        there is no such batch.
        """

    @abstractmethod
    def copied(self, location: bytes, listing: Iterable[Listed], batch: int) -> Asking[Copied]:
        """Return what a copy of a location takes that is to go on from ``batch``, without its ``entry``.

        Raises ``PlanError`` when there is no such batch.
        """

    @abstractmethod
    def moved(self, content: bytes, source: bytes, target: bytes) -> bytes:
        """Return what one of the ``rewritten`` files is to be at ``target``, where a location at ``source`` is copied to.

        Raises ``PlanError`` when it names files of other places, which would be read in the place of the copy's.
        """

    @abstractmethod
    def new_entry(self, content: bytes, new_id: str) -> bytes:
        """Return what ``entry`` is to be in a copy that is another query. Raises ``PlanError`` when ``content`` is none."""


class GroupLayout(ABC):
    """Files outside of locations and trees that are judged together with the others of their group."""

    @abstractmethod
    def group_of(self, listed: Listed) -> bytes | None:
        """Return the group of a name; None for a name that is not of this layout."""

    @abstractmethod
    def sweep(self, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        """Plan what can be deleted of a group."""
