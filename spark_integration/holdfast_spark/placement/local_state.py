"""State for a query whose tasks run in its driver's own process, as on ``local[…]``: all of it is read there.

There is nothing to place then. But tasks ask for their partitions one after the other, as many at once as there are cores,
and only when the batch has come to them. Where the node has nothing of the query's state, all partitions are fetched from
the start of the query on, while Spark plans its first batch. What the node has costs a question to its daemon.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from holdfast.control.messages import HoldingsReply
from holdfast_spark.placement.driver import Driver
from holdfast_spark.placement.fetch_ahead import begin_fetch
from holdfast_spark.placement.news import holding_nodes
from holdfast_spark.placement.operators import partitions_of_checkpoint
from holdfast_spark.placement.steering import path_of

_PARALLEL = 4


class LocalState:
    """In the place of ``Steering`` for such a driver. ``ask`` returns what this node holds of the query at a path."""

    def __init__(self, driver: Driver, ask: Callable[[str], HoldingsReply]) -> None:
        self._driver = driver
        self._ask = ask

    def begin(self, query_id: str, run_id: str, deadline: float) -> None:
        """Begin to fetch the state of a query that is about to start, if none of it is here. Raises what the mount does."""
        del run_id, deadline
        query = self._driver.query(query_id)
        path = path_of(query.location) if query is not None else None
        if path is None or holding_nodes(self._ask(str(path)).nodes, str(path)) or not (path / "state").is_dir():
            return
        with ThreadPoolExecutor(_PARALLEL) as threads:
            for _ in threads.map(partial(begin_fetch, path), range(partitions_of_checkpoint(path))):
                pass

    def look_again(self, run_id: str, *, after_batch: bool) -> None:
        """Do nothing: no partition moves."""

    def lost(self, executor_id: str) -> list[str]:
        """Return no run: the only executor is the driver."""
        del executor_id
        return []

    def forget(self, run_id: str) -> None:
        """Do nothing: no run is remembered."""
