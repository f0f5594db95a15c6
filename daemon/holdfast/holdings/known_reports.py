"""The reports that were read, so that none is read again before it changes; what they take in memory has a bound.

Whoever may write to a store may put thousands of reports there, each of which is small in the store and large when unpacked.
What goes beyond the bound counts as unreadable until others have gone.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.holdings.report import NodeReport

_MOST_BYTES = 128 * 2**20
"""The bound for the reports of one store: 500,000 state stores, ten times those of a large fleet."""
_STORE_BYTES, _REPORT_BYTES = 240, 1000
"""The estimated memory of a state store in a report, and of a report without any, strings left out."""
_log = logging.getLogger("holdfast.holdings")


class Known(NamedTuple):
    """An object as it was read: its etag, the report (None: it is none, or was left out), and its bytes in memory."""

    etag: str
    report: NodeReport | None
    memory_bytes: int = 0
    left_out: bool = False


@dataclass(slots=True)
class KnownReports:
    """The objects of one store by key. ``memory_bytes`` is the estimate for all reports together."""

    most_bytes: int = _MOST_BYTES
    memory_bytes: int = field(default=0, init=False)
    _known: dict[str, Known] = field(default_factory=dict, init=False)
    _has_told: bool = field(default=False, init=False)
    """True once the log says that reports are left out, until all have found room."""

    def get(self, key: str) -> Known | None:
        """Return an object as it was read last."""
        return self._known.get(key)

    def put(self, key: str, etag: str, report: NodeReport | None) -> NodeReport | None:
        """Keep what was read of an object, in the place of an earlier version; return it, or None if it is left out."""
        self._remove(key)
        memory_bytes = memory_of(report) if report is not None else 0
        left_out = self.memory_bytes + memory_bytes > self.most_bytes
        if left_out:
            if not self._has_told:
                text = "%s, and perhaps others, is left out: the reports of this store take more than %d bytes"
                _log.warning(text, key, self.most_bytes)
                self._has_told = True
            report, memory_bytes = None, 0
        self.memory_bytes += memory_bytes
        self._known[key] = Known(etag, report, memory_bytes, left_out)
        return report

    def keep(self, keys: Container[str]) -> None:
        """Forget all other objects. If that makes room, those that were left out are read again."""
        before = self.memory_bytes
        self._has_told = any(known.left_out for known in self._known.values())
        for key in [key for key in self._known if key not in keys]:
            self._remove(key)
        if self.memory_bytes < before:
            for key in [key for key, known in self._known.items() if known.left_out]:
                del self._known[key]

    def _remove(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self.memory_bytes -= known.memory_bytes


def memory_of(report: NodeReport) -> int:
    """Estimate what a report takes in memory, in bytes."""
    stores = sum(_STORE_BYTES + len(state.store) for query in report.queries for state in query.stores)
    locations = sum(_STORE_BYTES + len(query.location) for query in report.queries)
    problems = sum(map(len, report.health.problems)) if report.health is not None else 0
    return _REPORT_BYTES + stores + locations + sum(map(len, report.hosts)) + problems
