"""Places a query's state when Spark tells of it: before the first batch of each start, after each batch, and as soon as an
executor is lost.

Spark's thread of the query tells, and may wait for a start. So all work is done in other threads. Nothing is raised into
Spark: an exception would end the query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from holdfast.control.client import RefusedError
from holdfast_spark.placement.driver import reason
from holdfast_spark.placement.local_state import LocalState
from holdfast_spark.placement.steering import Steering

HOLDS_UP_SECONDS = 0.9
"""A start is held up no longer than this."""
_LOOKS_EVERY_SECONDS = 1.0
_log = logging.getLogger("holdfast.placement")


class QueryEvents:
    """Lets ``steering`` do its work, in threads of its own."""

    def __init__(self, steering: Steering | LocalState) -> None:
        self._steering = steering
        self._looking: threading.Thread | None = None
        self._next_look = 0.0
        self._told_problems: set[str] = set()

    def started(self, query_id: str, run_id: str) -> threading.Thread:
        """Return the thread that places the query's partitions, within ``HOLDS_UP_SECONDS`` or while it has no jobs."""
        deadline = time.monotonic() + HOLDS_UP_SECONDS
        return self._thread(partial(self._steering.begin, query_id, run_id, deadline))

    def look_again(self, run_id: str, *, after_batch: bool) -> None:
        """See whether executors have come or gone: one look at a time, and no more than one a second."""
        now = time.monotonic()
        if now >= self._next_look and (self._looking is None or not self._looking.is_alive()):
            self._next_look = now + _LOOKS_EVERY_SECONDS
            self._looking = self._thread(partial(self._steering.look_again, run_id, after_batch=after_batch))

    def executor_lost(self, executor_id: str) -> threading.Thread:
        """Return the thread that sends an executor's partitions elsewhere at once.

        Spark runs a stage again whose shuffle files were on a lost executor, and asks then where each partition belongs.
        """
        return self._thread(partial(self._follow_loss, executor_id))

    def _follow_loss(self, executor_id: str) -> None:
        looks = [
            partial(self._steering.look_again, run_id, after_batch=False) for run_id in self._steering.lost(executor_id)
        ]
        for thread in [self._thread(look) for look in looks]:  # at once: one may wait for a fetch
            thread.join()

    def ended(self, run_id: str) -> None:
        """Forget the run."""
        self._thread(partial(self._steering.forget, run_id))

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(work,), name="holdfast-placement", daemon=True)
        thread.start()
        return thread

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except RefusedError:
            _log.debug("the checkpoint is in none of the daemon's stores: Spark places its partitions by itself")
        except Exception as problem:  # noqa: BLE001 nothing that goes wrong here may end a query
            kind = type(problem).__name__
            if kind not in self._told_problems:
                self._told_problems.add(kind)
                _log.warning("Spark places partitions by itself: %s: %s", kind, reason(problem))
