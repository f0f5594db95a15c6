"""The newest committed version of each query, as far as this node has looked, and when it looks again."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass, field

import trio

from holdfast.errors import HoldfastError, RemoteUnavailableError
from holdfast.standbys.catching_up import CatchingUp
from holdfast.standbys.duties import Neighbours, doubtful
from holdfast.standbys.turns import Turns

_MOST_DOUBTS = 10
"""The number of queries in one look whose commits are listed because somebody tells of versions far ahead of the last."""
_log = logging.getLogger("holdfast.standbys")


@dataclass(slots=True)
class Commits:
    """The commits of the queries in one store. ``newest`` has the newest version by location, 0 for a query without any."""

    catching_up: CatchingUp
    newest: dict[str, int] = field(default_factory=dict, init=False)
    _empty_until: dict[str, float] = field(default_factory=dict, init=False)
    """The trio times until which queries that had no commit are left alone, by location: somebody may have made them up."""
    _doubts: Turns = field(default_factory=lambda: Turns(_MOST_DOUBTS), init=False)

    @property
    def going_on(self) -> list[str]:
        """The locations of the queries that have committed something."""
        return [location for location, version in self.newest.items() if version]

    def keep(self, locations: Collection[str]) -> None:
        """Forget all other queries."""
        self.newest = {location: version for location, version in self.newest.items() if location in locations}
        self._empty_until = {location: until for location, until in self._empty_until.items() if location in locations}

    async def look(self, location: str, empty_seconds: float) -> int:
        """Return the newest version; 0: none. A query without any is not asked again for ``empty_seconds``.

        Raises ``RemoteError``.
        """
        if self._empty_until.get(location, -math.inf) > trio.current_time():
            return 0
        version = self.newest[location] = await self.catching_up.newest_version(location)
        if not version:
            self._empty_until[location] = trio.current_time() + empty_seconds
        return version

    async def look_at_doubtful(self, neighbours: Neighbours, every_seconds: float) -> None:
        """Look at queries of which somebody tells versions far ahead of the last: they may have gone on meanwhile.

        If they have not, they are looked at again after ``every_seconds``: the versions are made up. Raises
        ``RemoteUnavailableError``.
        """
        locations = await trio.to_thread.run_sync(doubtful, neighbours, self.newest)
        for location in self._doubts.due(locations, (), trio.current_time(), every_seconds):
            self._doubts.took(location, trio.current_time())  # also if its listing takes too long, and this is cancelled
            try:
                self.newest[location] = await self.catching_up.newest_version(location)
            except RemoteUnavailableError:
                raise
            except HoldfastError as problem:
                _log.info("%s: can't list the commits of %s: %s", self.catching_up.zone, location, problem)
