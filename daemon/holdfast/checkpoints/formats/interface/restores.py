"""The verdict on a restart: the files that it reads, and the faults that it finds among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EngineVersion = tuple[int, int]
"""Major and minor version of an engine."""


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
