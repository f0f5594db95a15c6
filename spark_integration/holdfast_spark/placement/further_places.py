"""Tells the driver's scheduler beforehand who else has each partition's state, and how long to wait for whoever has it.

Spark does not ask where a partition belongs when it runs a task anew, and does not wait for anybody who asks
(``LostExecutors.java``). Who has standby copies changes while a query runs, so the daemon is asked again, ever less often
while executors stay the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast_spark.placement.assignment import Holders, places_with_state
from holdfast_spark.placement.driver import Driver, Executor, FurtherPlaces, reason

_FIRST_SECONDS, _MOST_SECONDS = 15.0, 3600.0
_BYTES_PER_SECOND = 16 * 2**20
"""The rate by which an executor without a partition's state would have it: a line of 1 Gbit/s that eight tasks share."""
_MOST_WAIT_SECONDS = 30
"""Half of the time after which dynamic allocation gives up an executor that has nothing to do."""
NOWHERE = FurtherPlaces()
_log = logging.getLogger("holdfast.placement")


@dataclass(slots=True)
class _Told:
    """The places that the driver was told for a run, and when the daemon is asked again."""

    further: FurtherPlaces = NOWHERE
    asked: float = 0.0
    pause_seconds: float = _FIRST_SECONDS

    @property
    def covered(self) -> int:
        """The number of partitions that can go on at another place than their own."""
        return sum(len(found) > 1 for found in self.further.places)


class FurtherPlacesOfRuns:
    """Tells ``driver``. ``clock`` returns seconds.

    A driver that refuses is not told anything any more; one that does not answer is told when the daemon is asked again.
    """

    def __init__(self, driver: Driver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._lock = threading.Lock()
        self._is_refused = False

    def is_due(self, run_id: str) -> bool:
        """Say whether it is time to find out again who holds what, though the executors are the same."""
        told = self._told.get(run_id)
        return not self._is_refused and told is not None and self._clock() - told.asked >= told.pause_seconds

    def tell(
        self,
        run_id: str,
        path: Path,
        executors: Iterable[Executor],
        counts: Collection[int],
        placed: Sequence[str],
        held: Mapping[int, Holders],
    ) -> None:
        """Tell where the tasks of partitions that were ``placed`` go, if it is not as it was told before.

        ``counts`` are the numbers of partitions that the operators have.
        """
        places = [places_with_state(held.get(partition, {}), place) for partition, place in enumerate(placed)]
        further = FurtherPlaces(sorted(executors), sorted(counts), places, seconds_to_wait(placed, held))
        now = _Told(further, self._clock())
        with self._lock:
            before = self._told.get(run_id, _Told())
            if before.further.executors == further.executors:
                now.pause_seconds = min(2 * before.pause_seconds, _MOST_SECONDS)
            self._told[run_id] = now
        if self._is_refused or before.further == further:
            return
        try:
            self._driver.tell_further_places(run_id, further)
        except Exception as problem:  # noqa: BLE001 whatever Spark raises: then tasks go to any executor
            self._is_refused = not isinstance(problem, TimeoutError)
            now.further = further._replace(places=())
            _log.info("tasks of lost executors go to any other: %s", reason(problem))
            return
        if now.covered != before.covered:
            _log.info("%s: %d of %d partitions can go on elsewhere", path, now.covered, len(places))

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended, and let the driver do so."""
        with self._lock:
            told = self._told.pop(run_id, None)
        if told is not None and not self._is_refused:
            with suppress(Exception):  # of a driver that ends, nothing is left anyway
                self._driver.tell_further_places(run_id, NOWHERE)


def seconds_to_wait(placed: Sequence[str], held: Mapping[int, Holders]) -> int:
    """Return how long a task waits for an executor where its state is: as long as it would take another one to have it.

    A stage's tasks wait together, so it is the largest partition that counts, of those that are where they were ``placed``.
    """
    holders = (held.get(partition, {}).get(place) for partition, place in enumerate(placed))
    most = max((each.size_bytes for each in holders if each is not None), default=0)
    return min(most // _BYTES_PER_SECOND, _MOST_WAIT_SECONDS)
