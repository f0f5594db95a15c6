"""Spark's driver as placement asks it, in whichever language the driver's program is written.

``cluster`` asks the JVM of a PySpark program, ``holdfast_spark.companion`` one without Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

NODE_ATTRIBUTE = "NODE"
"""The attribute that Spark gives an executor with ``SPARK_EXECUTOR_ATTRIBUTE_NODE`` in its environment."""
_CALLING = "An error occurred while calling"


class Executor(NamedTuple):
    """An executor that runs tasks; ``node`` is its attribute ``NODE``, which tells a pod's node ("": it has none)."""

    id: str
    host: str
    cores: int
    node: str = ""

    @property
    def place(self) -> str:
        """The node that the executor shares with others, by the best name there is: a pod's host is the pod alone."""
        return self.node or self.host


class StreamingQuery(NamedTuple):
    """A query that has been started: its checkpoint, and the state below it, as Spark writes them."""

    id: str
    location: str
    state_location: str


class Instance(NamedTuple):
    """One state store, and the executor that should have it."""

    operator: int
    partition: int
    store: str
    executor: Executor


class FurtherPlaces(NamedTuple):
    """The places where tasks with state can run that can't run where they belong.

    ``places`` has for each partition those that have its state, the best first, and ``executors`` the executors there.
    ``counts`` are the numbers of partitions that the query's operators have. ``wait_seconds`` is how long a task waits for
    an executor that has its state, beyond what Spark waits by itself.
    """

    executors: Sequence[Executor] = ()
    counts: Sequence[int] = ()
    places: Sequence[Sequence[str]] = ()
    wait_seconds: int = 0


class Driver(Protocol):
    """The driver of a program, as placement asks it. Every call may raise anything."""

    def seconds_since_start(self) -> float:
        """Return how long ago the application was started."""

    def executors(self) -> list[Executor]:
        """Return the executors that get tasks now.

        Not those that are being decommissioned, though they are active; nor those that have registered, but not yet their
        block manager: Spark does not tell where they are.
        """

    def query(self, query_id: str) -> StreamingQuery | None:
        """Return a query that is active; None for one that has ended."""

    def plan(self, query: StreamingQuery) -> str:
        """Return the analyzed plan of a query, as Spark prints it; empty if the query has ended."""

    def shuffle_partitions(self, query: StreamingQuery) -> int:
        """Return how many partitions the state of the query gets, if it is new."""

    def has_jobs(self, run_id: str) -> bool:
        """Say whether Spark has had anything to do for a run of a query."""

    def tell(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Tell the coordinator of state stores where each one is; return how many were told."""

    def elsewhere(self, query: StreamingQuery, run_id: str, instances: Iterable[Instance]) -> int:
        """Return how many state stores the coordinator knows with another executor now."""

    def tell_further_places(self, run_id: str, further: FurtherPlaces) -> None:
        """Tell where tasks of a run go whose executor is lost; without places, tasks of that run go anywhere."""


def words_of_further_places(run_id: str, further: FurtherPlaces) -> Iterator[str]:
    """Yield what ``FurtherPlaces.java`` reads."""
    yield from (run_id, str(1000 * further.wait_seconds))
    yield from (str(len(further.counts)), *map(str, further.counts))
    yield str(len(further.executors))
    for executor in further.executors:
        yield from (executor.place, executor.host, executor.id)
    for found in further.places:
        yield from (str(len(found)), *found)


def reason(problem: Exception) -> str:
    """Return on one line what went wrong. In py4j's errors the first line names the call, and the second the reason."""
    first, *more = str(problem).split("\n", 2)
    return f"{first} {more[0]}" if more and first.startswith(_CALLING) else first or type(problem).__name__
