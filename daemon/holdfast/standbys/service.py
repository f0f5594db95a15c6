"""The work of a standby: looking who holds what, and keeping the copies that fall to this node up to date.

One task for each store. It looks at what its neighbours on the ring have told, and for new commits. Nothing waits for any of
it, and whatever fails is tried again with the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

import trio

from holdfast.config import ZoneSection
from holdfast.errors import HoldfastError, RemoteUnavailableError
from holdfast.holdings import Gathering, Neighbourhood, Publishing, Told
from holdfast.holdings.publishing import REFRESHES_OF_STANDBYS
from holdfast.holdings.report import NOT_STANDING_BY, Partition, Standing
from holdfast.standbys.catching_up import CatchingUp, Progress
from holdfast.standbys.commits import Commits
from holdfast.standbys.departures import Departures
from holdfast.standbys.duties import Duties, Neighbours, Reporter, duties_of, held_by_nodes
from holdfast.standbys.moved_on import Looks
from holdfast.standbys.wishes import Wishes
from holdfast.transfer import BEHIND_ALL, IN_BACKGROUND
from holdfast.transfer.several_at_once import for_each

_IDLE_SECONDS = 5.0
_MISSED_WORDS, _OVERDUE_WORDS = 3.0, 1.25
"""The multiples of the time between two words of a node after which it counts as silent: in general, and if partitions have
gone on elsewhere since."""
_PARTITIONS_AT_ONCE = 2
_EMPTY_ROUNDS = 4
"""The number of rounds in which a query without any commit is looked at once: somebody may have made it up."""
_REFRESHES_OF_A_WISH = 10
"""The multiple of ``refresh_seconds`` for which it is believed how many copies a query asks for, or that a version that
somebody tells is made up."""
_ASKING_SECONDS = 60.0
"""The time for questions about queries in one look. Duties wait for them; what is not asked by then is asked with the next
looks."""
_SOON_LOOKS = 4
"""The number of looks at the reports that follow sooner after one that has changed the duties: changes come in groups."""
_NO_ROOM = "the disk, or the cache, has no room for them without an eviction"
_log = logging.getLogger("holdfast.standbys")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one store: partitions that this node stands by for, those of them that are complete, missing bytes.

    ``uncovered`` is the number of partitions that run here and of which no standby has a complete copy.
    """

    partitions: int = 0
    complete: int = 0
    missing_bytes: int = 0
    uncovered: int = 0


class StoreStandbys:
    """The standby copies of one store. ``settings`` are those in force; ``is_draining`` says whether this node is to go."""

    def __init__(
        self,
        catching_up: CatchingUp,
        gathering: Gathering,
        publishing: Publishing,
        settings: Callable[[], ZoneSection],
        is_draining: Callable[[], bool],
    ) -> None:
        self.catching_up = catching_up
        self.gathering = gathering
        self.publishing = publishing
        self.settings = settings
        self.is_draining = is_draining
        self._duties = Duties()
        self._progress: dict[Partition, Progress] = {}
        self._commits = Commits(catching_up)
        self._wishes = Wishes(catching_up)
        self._looks = Looks()
        self._departures = Departures()
        self._neighbourhood: Neighbourhood | None = None
        self._copies = 0
        """The neighbourhood, and the number of copies, that the duties are for."""
        self._soon = 0
        """The number of looks that follow sooner."""
        self._problem = ""

    @property
    def figures(self) -> Figures:
        """The figures of the moment."""
        missing = [self._missing_bytes(partition) for partition in self._duties.stands_by]
        return Figures(len(missing), missing.count(0), sum(each or 0 for each in missing), len(self._duties.uncovered))

    async def run(self) -> None:
        """Keep copies until cancelled."""
        IN_BACKGROUND.set(True)
        BEHIND_ALL.set(True)
        while True:
            settings = self.settings()
            if settings.standbys and self.publishing.section.enabled:
                self.catching_up.restraint.limit(settings.standby_bytes_per_second, settings.standby_requests_per_second)
                await self._work_guarded(settings.standbys)
                await trio.sleep(min(settings.standby_seconds, _IDLE_SECONDS) if self._problem else settings.standby_seconds)
            else:
                self._stop()
                await trio.sleep(_IDLE_SECONDS)

    def _stop(self) -> None:
        self._duties, self._neighbourhood = Duties(), None
        self._progress.clear()
        self.publishing.stand_by(self.catching_up.zone, NOT_STANDING_BY)

    async def _work_guarded(self, copies: int) -> None:
        problem = ""
        try:
            self._tell(copies)
            await self._look(copies)
            if self._duties.stands_by and not self.catching_up.copies.rooms.has_spare_anywhere():
                problem = _NO_ROOM
            elif not self.is_draining():
                await self._catch_up(copies)
                problem = _NO_ROOM if any(each.lacks_room for each in self._progress.values()) else ""
        except (HoldfastError, OSError) as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 what others have put into the store must not end the daemon
            problem = f"{type(error).__name__}: {error}"
            _log.exception("%s: standby copies wait for a fault of this daemon's", self.catching_up.zone)
        if problem and problem != self._problem:
            _log.info("%s: standby copies wait: %s", self.catching_up.zone, problem)
        self._problem = problem

    async def _look(self, copies: int) -> None:
        """Find out from the reports what falls to this node, if they have been read again since."""
        found = await self.gathering.neighbours(self.catching_up.zone, soon=self._soon > 0)
        if found is self._neighbourhood and copies == self._copies:
            return
        reporters = [Reporter(name, told.report) for name, told in found.told.items()]
        neighbours = Neighbours(found.name, reporters, lambda holder: {told.name for told in found.candidates(holder)})
        queries = {query.location for told in found.told.values() for query in told.report.queries}
        self._commits.keep(queries)
        every_seconds = _REFRESHES_OF_A_WISH * self.publishing.section.refresh_seconds
        with trio.move_on_after(_ASKING_SECONDS / 2):
            await self._commits.look_at_doubtful(neighbours, every_seconds)
        with trio.move_on_after(_ASKING_SECONDS / 2):
            await self._wishes.look(queries, self._commits.going_on, every_seconds)
        of_queries = self._wishes.known(queries)
        newest = dict(self._commits.newest)
        expected = self._looks.expected(found.name, {name: told.report for name, told in found.told.items()}, newest)
        held = await trio.to_thread.run_sync(held_by_nodes, neighbours, newest, expected)
        neighbours = replace(neighbours, reporters=self._with_silence(found.told, held))
        before = self._duties
        self._duties = await trio.to_thread.run_sync(duties_of, neighbours, of_queries, copies, newest, expected)
        self._soon = _SOON_LOOKS if self._duties.stands_by.keys() != before.stands_by.keys() else max(0, self._soon - 1)
        self._neighbourhood, self._copies = found, copies
        for partition in self._progress.keys() - self._duties.stands_by.keys():
            del self._progress[partition]
        self._tell(copies)

    def _with_silence(self, told: Mapping[str, Told], held: Mapping[str, int]) -> list[Reporter]:
        """Return the nodes that have told something, and which of them are silent. ``held``: how many partitions they hold.

        Their word is so much older than the newest one. Times in the future, which somebody has set or a clock that is wrong
        here makes, make no other silent.
        """
        now, section = self.gathering.clock(), self.publishing.section
        word_seconds = REFRESHES_OF_STANDBYS * section.refresh_seconds + section.interval_seconds
        lost_some = self._departures.look({name: each.written for name, each in told.items()}, held)
        newest = max((each.written for each in told.values() if not each.is_this_node and each.written <= now), default=-inf)
        longest = {name: _OVERDUE_WORDS if name in lost_some else _MISSED_WORDS for name in told}
        return [
            Reporter(name, each.report, newest - each.written > longest[name] * word_seconds) for name, each in told.items()
        ]

    async def _catch_up(self, copies: int) -> None:
        """Bring all copies up to date. A query that the store refuses does not keep the others waiting."""
        refused: HoldfastError | None = None
        for location in sorted({partition.location for partition in self._duties.stands_by}):
            try:
                await self._catch_up_query(location, copies)
            except RemoteUnavailableError:
                raise
            except HoldfastError as problem:
                refused = problem
        if refused is not None:
            raise refused

    async def _catch_up_query(self, location: str, copies: int) -> None:
        version = await self._commits.look(location, _EMPTY_ROUNDS * self.settings().standby_seconds)
        if not version:
            return
        complete = {
            partition: progress
            for partition, progress in self._progress.items()
            if partition.location == location and not progress.missing_bytes
        }
        self._progress |= await trio.to_thread.run_sync(self._evicted, complete)
        behind = [
            partition
            for partition in self._duties.stands_by
            if partition.location == location and not self._is_complete(partition, version)
        ]
        behind.sort(key=lambda partition: (partition in self._progress, partition.number))
        await for_each(behind, lambda partition: self._catch_up_one(partition, copies), _PARTITIONS_AT_ONCE)

    def _is_complete(self, partition: Partition, version: int) -> bool:
        progress = self._progress.get(partition)
        return progress is not None and (progress.version, progress.missing_bytes) == (version, 0)

    def _evicted(self, complete: Mapping[Partition, Progress]) -> dict[Partition, Progress]:
        """Return those copies that lack something by now, with how much. It waits for the disk: call it in a thread."""
        looked_at = {
            partition: progress._replace(missing_bytes=self.catching_up.missing_bytes(progress.needed))
            for partition, progress in complete.items()
        }
        return {partition: progress for partition, progress in looked_at.items() if progress.missing_bytes}

    async def _catch_up_one(self, partition: Partition, copies: int) -> None:
        operators = self._duties.stands_by.get(partition)
        if operators is not None:
            version = self._commits.newest[partition.location]
            try:
                self._progress[partition] = await self.catching_up.catch_up(partition, operators, version)
            except RemoteUnavailableError:
                raise
            except (HoldfastError, OSError) as problem:  # of this object or disk: the next round tries it again
                _log.info("%s: can't look after the copy of %s: %s", self.catching_up.zone, partition, problem)
            self._tell(copies)

    def _missing_bytes(self, partition: Partition) -> int | None:
        progress = self._progress.get(partition)
        return None if progress is None else progress.missing_bytes

    def _tell(self, copies: int) -> None:
        missing = {partition: progress.missing_bytes for partition, progress in self._progress.items()}
        self.publishing.stand_by(self.catching_up.zone, Standing(copies, missing))


class Standbys:
    """The standby copies of all stores."""

    def __init__(self, stores: Iterable[StoreStandbys]) -> None:
        self._stores = {each.catching_up.zone: each for each in stores}

    async def run(self) -> None:
        """Keep copies until cancelled."""
        async with trio.open_nursery() as nursery:
            for each in self._stores.values():
                nursery.start_soon(each.run)

    def figures(self) -> dict[str, Figures]:
        """Return the figures of each store that has standby copies configured."""
        return {zone: each.figures for zone, each in self._stores.items() if each.settings().standbys}
