"""What a benchmark is made of: targets, which are directories, and rows, which say what is done in them.

A new row is one ``Row`` in the list of its module; a new peer is one ``Target`` (``targets``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.report import Goal, Unit


@dataclass(frozen=True)
class Target:
    """A directory that is measured.

    ``front`` is the directory as its file system shows it; ``back`` the same directory on the plain disk, where files can
    be put behind the file system's back. ``ours``: it is Holdfast's, and compared with those that are not.
    """

    name: str
    front: Path
    back: Path
    command: str
    """How it was made, for the report."""
    ours: bool = False
    share: float = 1.0
    """How much of a row's work is done here, where each round does it anew: less where it takes minutes otherwise."""
    commits: bool = False
    """Whether a rename to a final name makes a file durable by itself."""
    sees_changes: bool = True
    """Whether what is changed at its back is seen in a directory that was made there."""
    cannot: frozenset[str] = frozenset()
    """Rows that it has no operation for."""


@dataclass(frozen=True)
class Scale:
    """How much is done. ``quick`` scales are for trying the benchmark, not for figures."""

    files: int = 10_000
    synced: int = 200
    listed: int = 10_000
    listed_many: int = 100_000
    remembered: int = 100_000
    """How many files the daemon's memory is measured with."""
    data_bytes: int = 2**29
    data_seconds: float = 2.0
    object_bytes: int = 2**30
    load_seconds: float = 4.0
    database_entries: int = 1_000_000
    """Of 116 bytes each."""
    warm_up_batches: int = 40
    """Until the JVM has compiled most of what a batch runs. All rounds together stay below 100, from where on each batch
    also removes an old one."""
    batches: int = 10
    state_keys: int = 4_800_000

    @classmethod
    def quick(cls) -> Scale:
        """Return a scale at which a round takes seconds."""
        return cls(500, 50, 1_000, 5_000, 5_000, 2**26, 0.3, 2**26, 1.0, 100_000, 2, 1, 40_000)


@dataclass(frozen=True)
class Site:
    """Where one target does one row: a directory of its own, not made yet, as it is named in the front and at the back."""

    target: Target
    front: Path
    back: Path
    scale: Scale
    share: float

    def part_of(self, things: int) -> int:
        """Return how many of so many things are done here."""
        return max(1, round(self.share * things))


Values = dict[str, float]
"""Values by what they are, when a row has several; the key is empty when it has one."""


def _leave(site: Site) -> None:
    """There is nothing to end."""


@dataclass(frozen=True)
class Row:
    """One thing to measure. ``setup`` makes the site's directory, untimed; ``action`` returns its values in ``unit``.

    ``teardown`` ends what ``setup`` has started, before the directory is removed; after an error ``Sides.at_end`` does.
    ``targets`` take part. Without ``fresh`` all rounds work in the directory that was set up for the first one.
    ``things`` is how often the action does what the row is about, before the site's share; 0: requests are not counted.
    """

    name: str
    what: str
    unit: Unit
    targets: tuple[Target, ...]
    setup: Callable[[Site], None]
    action: Callable[[Site], Values]
    fresh: bool = True
    most_rounds: int | None = None
    goals: Mapping[str, Goal] = field(default_factory=dict)
    """By the names of targets. They are about the value without a name, where a row has one among others."""
    things: int = 0
    teardown: Callable[[Site], None] = _leave


def seconds_of(action: Callable[[], object]) -> float:
    """Return how long ``action`` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
