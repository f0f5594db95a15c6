"""Telling the others what this node holds: one small object in each store, written again when it is no longer true.

It is told within ``interval_seconds`` that a state store has come or gone, that a standby copy is complete or no longer, or
that this node is drained. That versions and bytes have moved on seldom decides who holds a partition, and is told after
``refresh_seconds``, twice, four times and eight times as many, and then every ten times as many, until the next store comes
or goes. The object is written again after ten times ``refresh_seconds``, by a node that keeps standby copies after twice as
many, so that the others can tell a living node from one that has left: with the same bytes, so that nobody reads them again.
The node's health goes along; only what is wrong with it is a reason to write, every ``refresh_seconds`` at most. So a node
makes 6 requests an hour while nothing comes or goes (30 with standby copies), and one that never had state and keeps no
standby copies none.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import trio
from msgspec import structs

from holdfast.config import HoldingsSection
from holdfast.errors import HoldfastError
from holdfast.holdings.held_stores import HeldStore, HeldStores, Place
from holdfast.holdings.identity import NodeIdentity, identity_of_host
from holdfast.holdings.report import (
    DIRECTORY,
    NOT_STANDING_BY,
    REVISION,
    NodeHealth,
    NodeReport,
    Standing,
    encoded,
    held_of,
)
from holdfast.telemetry.wakeups import sleep_within
from holdfast.transfer import RemoteAccess

REFRESHES_UNCHANGED = 10
"""The multiple of ``refresh_seconds`` after which an object is written again although nothing has changed."""
REFRESHES_OF_STANDBYS = 2
"""The same of a node that keeps standby copies: the others must find out within minutes that it is lost."""
_LAST_WORD_SECONDS = 3.0
_log = logging.getLogger("holdfast.holdings")


@dataclass(frozen=True, slots=True)
class _Word:
    """The message for a store; ``material`` is the part of it that others decide by."""

    held: Mapping[Place, HeldStore]
    is_draining: bool
    standing: Standing
    report: NodeReport
    material: object


class _Due(enum.Enum):
    """The news for a store."""

    NOTHING = "nothing"
    STILL = "that the node is there"
    CHANGES = "what has changed"


@dataclass(frozen=True, slots=True)
class _Told:
    """The last message to a store, when its bytes were made, and when they were sent last (trio's time).

    ``refreshes`` is the multiple of ``refresh_seconds`` for which versions and bytes that have moved on are not told.
    """

    word: _Word
    problems: list[str]
    data: bytes
    made_at: float
    sent_at: float
    refreshes: int = 1
    has_failed: bool = False


def object_name(node: str, store_id: str) -> str:
    """Return the name of a node's object below ``.holdfast/``. Daemons of one host have store directories of their own."""
    return f"{DIRECTORY}/{node}.{store_id[:8]}"


@dataclass(slots=True)
class Publishing:
    """Tells ``stores``, by zone. ``is_draining`` says whether this node is about to go; ``health``, what a zone is told."""

    held: HeldStores
    stores: Mapping[str, RemoteAccess]
    section: HoldingsSection
    store_id: str
    is_draining: Callable[[], bool]
    health: Callable[[str], NodeHealth]
    _words: dict[str, _Word] = field(default_factory=dict, init=False)
    _told: dict[str, _Told] = field(default_factory=dict, init=False)
    _standing: dict[str, Standing] = field(default_factory=dict, init=False)
    _identity: NodeIdentity | None = field(default=None, init=False)

    async def identity(self) -> NodeIdentity:
        """Return the names of this node. The first call may ask a name server."""
        if self._identity is None:
            self._identity = await trio.to_thread.run_sync(identity_of_host, self.section)
        return self._identity

    def stand_by(self, zone: str, standing: Standing) -> None:
        """Tell from now on what this node does as a standby in the store of ``zone``."""
        self._standing[zone] = standing

    async def object_name(self) -> str:
        """Return the name of this node's object below ``.holdfast/``."""
        return object_name((await self.identity()).node, self.store_id)

    async def report(self, zone: str) -> NodeReport:
        """Return what this node holds of ``zone`` now."""
        word = await self._current_word(zone)
        return structs.replace(word.report, health=self.health(zone))

    async def run(self) -> None:
        """Tell the stores what changes, until cancelled."""
        if not self.section.enabled:
            await trio.sleep_forever()
        while True:
            await self._tell_all(last=False)
            await sleep_within(self.section.interval_seconds)

    async def finish(self) -> None:
        """Tell the stores once more what is no longer true, if they answer at once: the daemon ends."""
        if self.section.enabled:
            with trio.move_on_after(_LAST_WORD_SECONDS):
                await self._tell_all(last=True)

    async def _tell_all(self, *, last: bool) -> None:
        """Tell each store what it does not know yet.

        If that can't be counted now, for want of a descriptor for example, this does nothing: there is a next time.
        """
        try:
            words = {zone: await self._current_word(zone) for zone in self.stores}
        except (OSError, HoldfastError) as problem:
            _log.info("what this node holds can't be counted now: %s", problem)
            return
        async with trio.open_nursery() as nursery:
            for zone, word in words.items():
                health = self.health(zone)
                match self._due(self._told.get(zone), word, health.problems, last=last):
                    case _Due.STILL:
                        nursery.start_soon(self._send, zone, self._told[zone])
                    case _Due.CHANGES:
                        nursery.start_soon(self._tell, zone, word, health)

    async def _tell(self, zone: str, word: _Word, health: NodeHealth) -> None:
        """Tell one store what has changed."""
        data = await trio.to_thread.run_sync(encoded, structs.replace(word.report, health=health))
        told, refreshes, now = self._told.get(zone), 1, trio.current_time()
        if told is not None and told.word.material == word.material:
            refreshes = min(2 * told.refreshes, REFRESHES_UNCHANGED)
        await self._send(zone, _Told(word, health.problems, data, now, now, refreshes))

    async def _send(self, zone: str, told: _Told) -> None:
        """Send one store a message. An error of this node's own, as of a disk that fails, is no reason to wait longer."""
        name, has_failed = await self.object_name(), False
        try:
            await self.stores[zone].tell(name, told.data)
        except HoldfastError as problem:
            _log.info("%s: what this node holds can't be told: %s", zone, problem)
            has_failed = True
        except OSError as problem:
            _log.info("%s: what this node holds can't be told now: %s", zone, problem)
            return
        self._told[zone] = replace(told, sent_at=trio.current_time(), has_failed=has_failed)

    async def _current_word(self, zone: str) -> _Word:
        """Return what there is to tell now. It is worked out only where something has changed."""
        held, is_draining = await self.held.now(), self.is_draining()
        standing, word = self._standing.get(zone, NOT_STANDING_BY), self._words.get(zone)
        if word is None or word.held is not held or (word.is_draining, word.standing) != (is_draining, standing):
            word = await trio.to_thread.run_sync(self._word, await self.identity(), zone, held, is_draining, standing)
            self._words[zone] = word
        return word

    def _due(self, told: _Told | None, word: _Word, problems: list[str], *, last: bool) -> _Due:
        """Return what the store is to be told. After a failure it is told later, as it may be down for long."""
        if told is None:
            return _Due.CHANGES if word.report.queries or word.report.standbys else _Due.NOTHING
        age, refresh_seconds = trio.current_time() - told.made_at, self.section.refresh_seconds
        since_sent = trio.current_time() - told.sent_at
        if told.has_failed:
            return _Due.CHANGES if not last and since_sent >= refresh_seconds else _Due.NOTHING
        refreshes = REFRESHES_UNCHANGED
        if problems != told.problems:
            refreshes = 0 if last else 1
        elif word.report != told.word.report:
            refreshes = 0 if last else told.refreshes
        if word.material != told.word.material or age >= refreshes * refresh_seconds:
            return _Due.CHANGES
        refreshes = REFRESHES_OF_STANDBYS if word.report.standbys else REFRESHES_UNCHANGED
        return _Due.STILL if since_sent >= refreshes * refresh_seconds else _Due.NOTHING

    def _word(
        self,
        identity: NodeIdentity,
        zone: str,
        held: Mapping[Place, HeldStore],
        is_draining: bool,
        standing: Standing,
    ) -> _Word:
        of_zone = held_of(held, zone, standing)
        if of_zone.dropped:
            _log.info("%s: %d state stores that a report can't have are left out", zone, of_zone.dropped)
        report = NodeReport(
            revision=REVISION,
            node=identity.node,
            hosts=list(identity.hosts),
            cores=identity.cores,
            is_draining=is_draining,
            rack=identity.rack,
            standbys=standing.copies,
            queries=of_zone.queries,
        )
        material = (
            is_draining,
            report.standbys,
            frozenset(
                (query.location, state.operator, state.partition, state.store, state.is_copy, state.missing_bytes == 0)
                for query in report.queries
                for state in query.stores
            ),
        )
        return _Word(held, is_draining, standing, report, material)
