"""Counts since the daemon's start. Changed on the event loop only."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Counters:
    """``hits`` and ``misses`` count opens of objects, ``bytes_hit`` the sizes of those that were here.

    ``requests`` counts requests to the stores, by kind.
    """

    hits: int = 0
    misses: int = 0
    bytes_hit: int = 0
    bytes_fetched: int = 0
    bytes_uploaded: int = 0
    objects_fetched: int = 0
    objects_uploaded: int = 0
    corrupt_dropped: int = 0
    files_evicted: int = 0
    bytes_evicted: int = 0
    objects_swept: int = 0
    bytes_swept: int = 0
    standby_bytes_fetched: int = 0
    internal_errors: int = 0
    requests: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, object]:
        """Return all counts by name."""
        return {**asdict(self), "requests": dict(self.requests)}
