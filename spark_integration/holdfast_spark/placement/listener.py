"""The listener that Spark calls: before the first batch of each start of a query, and after each batch.

Spark's thread of the query calls it and waits. So all work is done in other threads, and a start is held up for less than a
second, whatever happens. Nothing is raised into Spark: an exception would end the query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from holdfast.control.client import RefusedError
from holdfast_spark.placement.cluster import reason
from holdfast_spark.placement.steering import Steering

_HOLDS_UP_SECONDS = 0.9
_LOOKS_EVERY_SECONDS = 1.0
_log = logging.getLogger("holdfast.placement")


class PlacementListener(StreamingQueryListener):
    """Lets ``steering`` do its work, in threads of its own."""

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self._looking: threading.Thread | None = None
        self._next_look = 0.0
        self._told_problems: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Place the query's partitions, within a second."""
        deadline = time.monotonic() + _HOLDS_UP_SECONDS
        begin = partial(self._steering.begin, str(event.id), str(event.runId), deadline)
        self._started(begin).join(_HOLDS_UP_SECONDS)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._look_again(str(event.progress.runId), after_batch=True)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 Spark's name
        """See whether executors have come or gone."""
        self._look_again(str(event.runId), after_batch=False)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 Spark's name
        """Forget the run."""
        self._steering.forget(str(event.runId))

    def _look_again(self, run_id: str, *, after_batch: bool) -> None:
        """One look at a time, and no more than one a second."""
        now = time.monotonic()
        if now >= self._next_look and (self._looking is None or not self._looking.is_alive()):
            self._next_look = now + _LOOKS_EVERY_SECONDS
            self._looking = self._started(partial(self._steering.look_again, run_id, after_batch=after_batch))

    def _started(self, work: Callable[[], None]) -> threading.Thread:
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
