"""The numbers of standby copies that queries ask for by their files ``_standbys``: read in turn, known until read again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import trio

from holdfast.errors import HoldfastError, RemoteUnavailableError
from holdfast.standbys.catching_up import CatchingUp
from holdfast.standbys.turns import Turns

_MOST_AT_ONCE = 1000
"""The number of queries that are asked in one look. A node's neighbours seldom run more; somebody may make more up."""
_RETRIES = 5
"""A wish that could not be read is asked for again this many times in the time for which others are believed."""
_log = logging.getLogger("holdfast.standbys")


@dataclass(slots=True)
class Wishes:
    """The wishes of the queries in one store."""

    catching_up: CatchingUp
    _turns: Turns = field(default_factory=lambda: Turns(_MOST_AT_ONCE), init=False)
    _known: dict[str, int] = field(default_factory=dict, init=False)

    async def look(self, locations: Collection[str], real: Collection[str], every_seconds: float) -> Mapping[str, int]:
        """Return what is known of the queries at ``locations``, after asking those whose turn it is.

        Each is asked every ``every_seconds`` at most, and those in ``real``, which have committed something, first. Queries
        that ask for nothing are left out. When this is cancelled, what was answered so far is known. Raises
        ``RemoteUnavailableError``.
        """
        for location in self._turns.due(locations, real, trio.current_time(), every_seconds):
            self._turns.took(location, trio.current_time() - every_seconds * (1 - 1 / _RETRIES))
            if await self._ask(location):
                self._turns.took(location, trio.current_time())
        return self.known(locations)

    def known(self, locations: Collection[str]) -> Mapping[str, int]:
        """Return what is known of the queries at ``locations``; what is known of others is forgotten."""
        self._known = {location: self._known[location] for location in locations if location in self._known}
        return dict(self._known)

    async def _ask(self, location: str) -> bool:
        """Ask for a wish; return whether it could be read. If the store refuses the answer, the one before is believed."""
        try:
            copies = await self.catching_up.wanted_copies(location)
        except RemoteUnavailableError:
            raise
        except HoldfastError as problem:
            _log.info("%s: can't read how many copies %s asks for: %s", self.catching_up.zone, location, problem)
            return False
        if copies is None:
            self._known.pop(location, None)
        else:
            self._known[location] = copies
        return True
