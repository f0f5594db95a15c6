"""Which of the objects that a restart has fetched are state, and not the logs of the query."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import StatePartition


def count_state(keys: Iterable[str]) -> int:
    """Return how many of these keys, of objects of Spark's checkpoints, are files of a partition's state."""
    names = (b"state/" + below.encode() for _, found, below in (key.partition("/state/") for key in keys) if found)
    return sum(isinstance(FORMATS.locations[0].state_of(name), StatePartition) for name in names)
