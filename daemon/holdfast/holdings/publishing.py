"""Telling the others what this node holds: one small object in each store, written again when it is no longer true.

It is told within ``interval_seconds`` that a state store has come or gone, that a standby copy is complete or no longer, or
that this node is drained; but only every ``refresh_seconds`` that versions and bytes have moved on, which seldom decides
who holds a partition. If nothing has changed, the object is written again ten times as rarely, by a node that keeps
standby copies half as often, so that the others can tell a living node from one that has left. The node's health goes
along; only what is wrong with it is a reason to write, as often as versions. So a busy node makes some 60 requests an hour,
an idle one 6 (30 with standby copies), and one that never had state and keeps no standby copies none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio
from msgspec import structs

from holdfast.config import HoldingsSection
from holdfast.errors import HoldfastError
from holdfast.holdings.held_stores import HeldStore, HeldStores, Place
from holdfast.holdings.identity import NodeIdentity, identity_of_host
from holdfast.holdings.report import DIRECTORY, NOT_STANDING_BY, NodeHealth, NodeReport, Standing, encoded, held_of
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


@dataclass(frozen=True, slots=True)
class _Told:
    """The last message to a store, and its time (trio's)."""

    word: _Word
    problems: list[str]
    at: float
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
        identity = await self.identity()
        held = await self.held.now()
        standing = self._standing.get(zone, NOT_STANDING_BY)
        report = await trio.to_thread.run_sync(self._report, identity, zone, held, self.is_draining(), standing)
        return structs.replace(report, health=self.health(zone))

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
        health = {zone: self.health(zone) for zone in words}
        due = {
            zone: word for zone, word in words.items() if self._is_due(self._told.get(zone), word, health[zone], last=last)
        }
        if due:
            async with trio.open_nursery() as nursery:
                for zone, word in due.items():
                    nursery.start_soon(self._tell, zone, word, health[zone])

    async def _tell(self, zone: str, word: _Word, health: NodeHealth) -> None:
        """Tell one store. An error of this node's own, as of a disk that fails, is no reason to wait longer than usual."""
        name, has_failed = await self.object_name(), False
        data = await trio.to_thread.run_sync(encoded, structs.replace(word.report, health=health))
        try:
            await self.stores[zone].tell(name, data)
        except HoldfastError as problem:
            _log.info("%s: what this node holds can't be told: %s", zone, problem)
            has_failed = True
        except OSError as problem:
            _log.info("%s: what this node holds can't be told now: %s", zone, problem)
            return
        self._told[zone] = _Told(word, health.problems, trio.current_time(), has_failed)

    async def _current_word(self, zone: str) -> _Word:
        """Return what there is to tell now. It is worked out only where something has changed."""
        held, is_draining = await self.held.now(), self.is_draining()
        standing, word = self._standing.get(zone, NOT_STANDING_BY), self._words.get(zone)
        if word is None or word.held is not held or (word.is_draining, word.standing) != (is_draining, standing):
            word = await trio.to_thread.run_sync(self._word, await self.identity(), zone, held, is_draining, standing)
            self._words[zone] = word
        return word

    def _is_due(self, told: _Told | None, word: _Word, health: NodeHealth, *, last: bool) -> bool:
        """Say whether the store is to be told. After a failure it is told later, as it may be down for long."""
        if told is None:
            return bool(word.report.queries or word.report.standbys)
        age = trio.current_time() - told.at
        if told.has_failed:
            return not last and age >= self.section.refresh_seconds
        if word.material != told.word.material:
            return True
        if word.report != told.word.report or health.problems != told.problems:
            return last or age >= self.section.refresh_seconds
        refreshes = REFRESHES_OF_STANDBYS if word.report.standbys else REFRESHES_UNCHANGED
        return age >= refreshes * self.section.refresh_seconds

    def _report(
        self,
        identity: NodeIdentity,
        zone: str,
        held: Mapping[Place, HeldStore],
        is_draining: bool,
        standing: Standing,
    ) -> NodeReport:
        of_zone = held_of(held, zone, standing)
        if of_zone.dropped:
            _log.info("%s: %d state stores that a report can't have are left out", zone, of_zone.dropped)
        return NodeReport(
            node=identity.node,
            hosts=list(identity.hosts),
            cores=identity.cores,
            is_draining=is_draining,
            rack=identity.rack,
            standbys=standing.copies,
            queries=of_zone.queries,
        )

    def _word(
        self,
        identity: NodeIdentity,
        zone: str,
        held: Mapping[Place, HeldStore],
        is_draining: bool,
        standing: Standing,
    ) -> _Word:
        report = self._report(identity, zone, held, is_draining, standing)
        material = (
            is_draining,
            report.standbys,
            frozenset(
                (query.location, state.operator, state.partition, state.store, state.is_copy, not state.missing_bytes)
                for query in report.queries
                for state in query.stores
            ),
        )
        return _Word(held, is_draining, standing, report, material)
