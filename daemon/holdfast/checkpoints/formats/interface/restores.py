"""What a restart would read, and whether it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EngineVersion = tuple[int, int]
"""Major and minor version of an engine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that a restart needs and can't have, by its name below the root, and why. ``is_missing``: it is not there."""

    name: bytes
    why: str
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """A retained batch, checkpoint or savepoint: whether a restart from it finds all that it reads.

    ``name`` is what ``drop`` takes, ``what`` as in ``Found``. Without ``faults`` it can be restored; ``remarks`` say what a
    restart gets by with. ``reads`` are the names of all files that it reads, in parts that restores may share.
    ``is_expired``: the engine has begun to delete what belongs to it, as it does with the oldest. ``is_newest``: a restart
    of the job, as things are, begins here.
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
        """Whether a restart finds all that it reads."""
        return not self.faults

    def files(self) -> Iterator[bytes]:
        """Yield the names of what it reads; some may come twice."""
        for part in self.reads:
            yield from part
