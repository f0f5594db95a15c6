"""Which nodes no longer work with a query, by what they tell and by what is committed meanwhile.

A report says which version of a partition a node has worked with last. If the partition has moved to a node that is no
neighbour, nobody here tells of a newer version. But all partitions of a query move on together: a node that still works with
one has reached, whenever it tells anew, the version that was committed before. One that has not is no longer the holder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.holdings.report import NodeReport


@dataclass(frozen=True, slots=True)
class Expected:
    """The versions that nodes have reached if they still work with a query, by node and location.

    ``going_on`` are the locations of queries that have committed something since the last look: somebody works with them.
    """

    versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    going_on: frozenset[str] = frozenset()

    def is_behind(self, node: str, location: str, version: int) -> bool:
        """Say whether a node that has worked with ``version`` of a query at last no longer does."""
        return version < self.versions.get(node, {}).get(location, 0)


@dataclass(slots=True)
class Looks:
    """The reports at the last look, and the newest committed versions at the last two."""

    _reports: dict[str, NodeReport] = field(default_factory=dict)
    _versions: dict[str, Mapping[str, int]] = field(default_factory=dict)
    _newest: deque[Mapping[str, int]] = field(default_factory=lambda: deque([{}, {}], maxlen=2))

    def expected(self, me: str, reports: Mapping[str, NodeReport], newest: Mapping[str, int]) -> Expected:
        """Take the reports of a look; return what is expected of the nodes.

        ``newest`` has the newest version of each query, by location, that was known before the reports were asked for. A
        report that has changed was made after the last look. Of that the versions of the look before it are expected, as a
        report may have been on its way for a while.
        """
        before, last = self._newest
        for name, report in reports.items():
            if name == me or (name in self._reports and self._reports[name] != report):
                self._versions[name] = before
        for name in self._versions.keys() - reports.keys():
            del self._versions[name]
        self._reports = dict(reports)
        self._newest.append(dict(newest))
        going_on = frozenset(location for location, version in newest.items() if 0 < last.get(location, 0) < version)
        return Expected(dict(self._versions), going_on)
