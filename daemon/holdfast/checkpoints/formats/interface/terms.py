"""The terms that all formats share: parts of names, lines of a listing, state by partitions, and verdicts on restarts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.checkpoints.plans import Listed

EngineVersion = tuple[int, int]
"""Major and minor version of an engine."""
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
    """One line of a census: a checkpoint, a savepoint, a batch of a query, or the files that several of these share.

    ``name`` is what ``drop`` takes, or the directory of something that can't be dropped by itself. ``what`` is
    ``checkpoint``, ``savepoint``, ``batch``, ``shared`` or ``state``. ``files`` and ``size_bytes`` count what is there, for
    a checkpoint only its exclusive files; ``newest_ns`` is the time of the last write.
    """

    name: bytes
    what: str
    is_complete: bool
    files: int
    size_bytes: int
    newest_ns: int

    @classmethod
    def of(cls, name: bytes, what: str, files: Sequence[Listed], *, is_complete: bool) -> Found:
        """Return the line that adds up ``files``, of which there is at least one."""
        newest_ns = max(listed.mtime_ns for listed in files)
        return cls(name, what, is_complete, len(files), sum(listed.size_bytes for listed in files), newest_ns)


class Counted(NamedTuple):
    """A line of a census with its sort key. Lines are sorted by job or location, then by number, then by name."""

    owner: bytes
    number: int
    found: Found


class StateStore(NamedTuple):
    """One state store of a query: ``location`` is the query's checkpoint location, ``name`` the store's among its
    partition's.
    """

    location: bytes
    operator: int
    partition: int
    name: bytes


class StateFile(NamedTuple):
    """A file belongs to ``store``; ``version`` is the state version that it brings, None if several share the file.

    ``directory`` has all files of the store, and possibly those of others.
    """

    store: StateStore
    version: int | None
    directory: bytes


class StatefulOperator(NamedTuple):
    """An operator of a query that keeps state: how many partitions there are, and which stores each of them has."""

    operator: int
    partitions: int
    stores: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that a restart needs but can't use, by its name below the root, and why. ``is_missing``: it is not there."""

    name: bytes
    why: str
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """The verdict on a retained batch, checkpoint or savepoint: it is good if a restart from it finds all that it reads.

    ``name`` is what ``drop`` takes, ``what`` is the same as in ``Found``. Without ``faults`` it can be restored; ``remarks``
    name the problems that a restart copes with. ``reads`` are the names of all files that a restart reads, in parts that
    several restores may share. ``is_expired``: the engine has begun to delete its files, as it does with the oldest.
    ``is_newest``: if the job is restarted now, it begins here.
    """

    name: bytes
    what: str
    faults: tuple[Fault, ...]
    remarks: tuple[str, ...] = ()
    reads: tuple[tuple[bytes, ...], ...] = ()
    is_expired: bool = False
    is_newest: bool = False

    @property
    def is_good(self) -> bool:
        """True if a restart finds all that it reads."""
        return not self.faults

    def files(self) -> Iterator[bytes]:
        """Yield the names of the files that a restart reads; some may come twice."""
        for part in self.reads:
            yield from part
