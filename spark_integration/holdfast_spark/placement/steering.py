"""Steering the running queries of one driver: where each partition was told to be, and what is told when executors change.

Called from threads that may wait; a query never waits for any of it longer than its listener lets it (``listener``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.checkpoints.formats.interface import StatefulOperator
from holdfast.control.messages import HoldingsInfo, HoldingsReply
from holdfast_spark.placement import news
from holdfast_spark.placement.assignment import Held, Holders, assign
from holdfast_spark.placement.driver import NODE_ATTRIBUTE, Driver, Executor, Instance, StreamingQuery, reason
from holdfast_spark.placement.further_places import FurtherPlacesOfRuns
from holdfast_spark.placement.operators import operators_of_checkpoint, operators_of_plan, partitions_of_checkpoint

_YOUNG_SECONDS = 15.0
"""The age of an application, in seconds, up to which it may wait for executors that register late."""
_LATE_SECONDS = 0.5
_POLL_SECONDS = 0.05
_CHECKS = 3
"""The number of batches after each of which it is checked that partitions have moved. An executor that is always busy is not
waited for."""
_NAMED = 3
"""The number of places that a line in the log names."""
_log = logging.getLogger("holdfast.placement")

Ask = Callable[[str], HoldingsReply]
"""Returns what all nodes hold of the query at a path. Raises ``HoldfastError``."""
FetchAhead = Callable[[Path, Mapping[str, Sequence[int]]], int]
"""Fetches the partitions of the query at a location to hosts (``fetch_ahead``); returns the bytes."""


@dataclass(slots=True)
class _Run:
    """One run of a query: ``placed`` has the executors' place of each partition.

    ``told`` is what Spark was told of that: some partitions go to their places only when they have been fetched there.
    ``checks`` is the number of further batches after each of which it is checked that the partitions are where they were
    sent.
    """

    query: StreamingQuery
    path: Path
    operators: list[StatefulOperator]
    is_guessed: bool
    executors: list[Executor] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    told: Sequence[str] = ()
    checks: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that changes any of this."""

    @property
    def counts(self) -> set[int]:
        """The numbers of partitions that the operators have."""
        return {operator.partitions for operator in self.operators}


class _Move(NamedTuple):
    """Partitions that go to their places when they have been fetched there: the placement, who holds what, and where."""

    placed: list[str]
    held: Mapping[int, Holders]
    host_of: Mapping[str, str]


class Steering:
    """Steers through ``cluster``. ``ask`` and ``fetch_ahead`` reach the daemon and the executors."""

    def __init__(self, cluster: Driver, ask: Ask, fetch_ahead: FetchAhead) -> None:
        self._cluster = cluster
        self._ask = ask
        self._fetch_ahead = fetch_ahead
        self._further = FurtherPlacesOfRuns(cluster)
        self._runs: dict[str, _Run] = {}
        self._beginning: dict[str, bool] = {}
        """The runs whose start is being placed, and whether they have not ended."""
        self._lost: set[str] = set()
        self._lock = threading.Lock()
        self._has_told_of_strangers = False

    def begin(self, query_id: str, run_id: str, deadline: float) -> None:
        """Tell Spark where the partitions of a query belong that is about to start.

        After ``deadline`` the query may have begun: then only if it has no jobs yet, for its state would move once more.
        """
        with self._lock:
            self._beginning[run_id] = True
        try:
            self._begin(query_id, run_id, deadline)
        finally:
            with self._lock:
                goes_on = self._beginning.pop(run_id)
            if not goes_on:
                self.forget(run_id)

    def _begin(self, query_id: str, run_id: str, deadline: float) -> None:
        query = self._cluster.query(query_id)
        path = path_of(query.location) if query is not None else None
        if query is None or path is None:
            return
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(self._ask, str(path))
            operators = operators_of_checkpoint(path)
            is_guessed = not operators
            if is_guessed:
                partitions = partitions_of_checkpoint(path) or self._cluster.shuffle_partitions(query)
                operators = operators_of_plan(self._cluster.plan(query), partitions)
            executors = self._executors()
            nodes = asked.result().nodes
        if not operators:
            return
        run = _Run(query, path, operators, is_guessed)
        run.executors = self._executors_with(executors, news.holding_nodes(nodes, str(path)), deadline)
        held = self._place(run, nodes, ())
        with run.turn:
            with self._lock:
                self._runs[run_id] = run
            if time.monotonic() > deadline and self._cluster.has_jobs(run_id):
                run.placed = []
                _log.warning("%s: it took too long to find where the state is; Spark places this start by itself", path)
                return
            self._tell(run_id, run, run.placed)
            self._further.tell(run_id, path, run.executors, run.counts, run.told, held)
        _log.info("%s: %s", path, _summary(run, held))
        if any(executor.id in self._lost for executor in run.executors):  # meanwhile, when nobody knew of this run
            self.look_again(run_id, after_batch=False)

    def look_again(self, run_id: str, *, after_batch: bool) -> None:
        """Tell Spark anew if executors have come or gone since the last time, or if a guess at the operators was wrong.

        What is to move from an executor that is still there waits for a fetch, and other calls do not wait for that.
        """
        run = self._runs.get(run_id)
        if run is None:
            return
        with run.turn:
            move = self._look(run_id, run, after_batch=after_batch) if run_id in self._runs else None
        if move is not None:
            self._tell_when_fetched(run_id, run, move)

    def _look(self, run_id: str, run: _Run, *, after_batch: bool) -> _Move | None:
        """Tell Spark what can be told at once; return what is to be fetched before it is told."""
        executors = self._executors()
        known = operators_of_checkpoint(run.path) if run.is_guessed else []
        if sorted(executors) == sorted(run.executors) and known in ([], run.operators):
            run.is_guessed = run.is_guessed and not known
            if after_batch:
                self._check(run_id, run)
            if self._further.is_due(run_id):
                held = news.by_partition(self._ask(str(run.path)).nodes, run.executors, str(run.path))
                self._further.tell(run_id, run.path, run.executors, run.counts, run.told, held)
            return None
        nodes = self._ask(str(run.path)).nodes  # if nobody answers, the run stays as it was, and the next look starts over
        run.is_guessed = run.is_guessed and not known
        run.operators = known or run.operators
        run.executors = executors
        held = self._place(run, nodes, run.told)
        at_once = self._without_waiting(run, held)
        self._tell(run_id, run, at_once)
        self._further.tell(run_id, run.path, run.executors, run.counts, run.told, held)
        _log.info("%s: executors have changed; %s", run.path, _summary(run, held))
        host_of = {executor.place: executor.host for executor in executors}
        return _Move(run.placed, held, host_of) if at_once != run.placed else None

    def lost(self, executor_id: str) -> list[str]:
        """Note that an executor is gone, whether Spark lists it or not; return the runs whose partitions may be there."""
        self._lost.add(executor_id)
        with self._lock:
            return list(self._runs)

    def _executors(self) -> list[Executor]:
        return [executor for executor in self._cluster.executors() if executor.id not in self._lost]

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended, though somebody may be about to tell the driver of it."""
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is None and run_id in self._beginning:
                self._beginning[run_id] = False
        if run is not None:
            with run.turn:
                self._further.forget(run_id)

    def _executors_with(self, executors: list[Executor], holders: Sequence[HoldingsInfo], deadline: float) -> list[Executor]:
        """Return the executors; of a young application, wait a moment for those on nodes that hold the state."""
        until = min(deadline - _LATE_SECONDS / 2, time.monotonic() + _LATE_SECONDS)
        if self._cluster.seconds_since_start() > _YOUNG_SECONDS:
            return executors
        while time.monotonic() < until:
            if executors and news.have_executors(holders, executors):
                break
            time.sleep(_POLL_SECONDS)
            executors = self._executors()
        return executors

    def _place(self, run: _Run, nodes: Sequence[HoldingsInfo], before: Sequence[str]) -> dict[int, dict[str, Held]]:
        """Find a place for each partition; return who holds what.

        An operator that is not divided has one partition, where others have many. It is at the place of their first one: a
        daemon counts holdings, and keeps copies, of the partitions of a number together.
        """
        cores: dict[str, int] = {}
        for executor in run.executors:
            cores[executor.place] = cores.get(executor.place, 0) + executor.cores
        self._tell_of_strangers(run, nodes)
        staying = cores.keys() - news.draining_places(nodes, run.executors)
        cores = {place: count for place, count in cores.items() if place in staying} or cores
        held = news.by_partition(nodes, run.executors, str(run.path))
        count = max(run.counts) if cores else 0
        run.placed = assign(run.query.location, count, cores, held, dict(enumerate(before))) if count else []
        return held

    def _tell_of_strangers(self, run: _Run, nodes: Sequence[HoldingsInfo]) -> None:
        """Say once that no executor is where a daemon reports what it holds: then no state is found."""
        if self._has_told_of_strangers or not run.executors or news.nodes_by_place(nodes, run.executors):
            return
        self._has_told_of_strangers = True
        places = ", ".join(sorted({executor.place for executor in run.executors})[:_NAMED])
        names = ", ".join(sorted({node.node for node in nodes})[:_NAMED])
        _log.info(
            "no executor belongs to a node that reports, so no state is found: executors are on %s, and nodes are %s; "
            "in pods, executors need %s=<node> in their environment (docs/kubernetes.md)",
            places,
            names or "none",
            f"SPARK_EXECUTOR_ATTRIBUTE_{NODE_ATTRIBUTE}",
        )

    def _without_waiting(self, run: _Run, held: Mapping[int, Holders]) -> list[str]:
        """Return where partitions go now.

        One that would move to a node without its state stays where it is, if that place still has an executor.
        """
        places = {executor.place for executor in run.executors}
        late = {partition for moved in news.moved_to_strangers(run.placed, held).values() for partition in moved}
        before = dict(enumerate(run.told))
        return [
            before[partition] if partition in late and before.get(partition) in places else place
            for partition, place in enumerate(run.placed)
        ]

    def _tell_when_fetched(self, run_id: str, run: _Run, move: _Move) -> None:
        """Fetch to the nodes that have come what they are to have, then send the partitions there if that is still right."""
        moved = news.moved_to_strangers(move.placed, move.held)
        wanted = {move.host_of[place]: partitions for place, partitions in moved.items()}
        try:
            read = self._fetch_ahead(run.path, wanted)
            _log.info("%s: %d MiB fetched to %s beforehand", run.path, read >> 20, ", ".join(sorted(moved)))
        except Exception as problem:  # noqa: BLE001 whatever Spark raises: then the first task fetches
            _log.warning("%s: can't fetch ahead: %s", run.path, reason(problem))
        with run.turn:
            is_right = run.placed is move.placed and sorted(self._executors()) == sorted(run.executors)
            if is_right and run_id in self._runs:
                self._tell(run_id, run, move.placed)

    def _tell(self, run_id: str, run: _Run, placed: Sequence[str], checks: int = _CHECKS) -> None:
        run.checks = checks
        run.told = placed
        self._cluster.tell(run.query, run_id, _instances(run, placed))

    def _check(self, run_id: str, run: _Run) -> None:
        """Tell once more what tasks have undone.

        A task that was under way claims its stores for the executor that it runs on. So does one that gave up waiting for a
        busy executor, as happens in a first batch.
        """
        if not run.checks:
            return
        run.checks -= 1
        if self._cluster.elsewhere(run.query, run_id, _instances(run, run.told)):
            self._tell(run_id, run, run.told, run.checks)


def path_of(location: str) -> Path | None:
    """Return the directory of a checkpoint as Spark names it (``file:/mnt/…``); None if it is none of this machine's."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme != "file":
        return None
    return Path("/" + (rest if colon else location).lstrip("/"))


def _instances(run: _Run, placed: Sequence[str]) -> Iterator[Instance]:
    by_place: dict[str, list[Executor]] = {}
    for executor in sorted(run.executors):
        by_place.setdefault(executor.place, []).extend([executor] * executor.cores)
    for operator in run.operators:
        turns = dict.fromkeys(by_place, 0)
        for partition, place in enumerate(placed[: operator.partitions]):
            executor = by_place[place][turns[place] % len(by_place[place])]
            turns[place] += 1
            for store in operator.stores:
                yield Instance(operator.operator, partition, store.decode(), executor)


def _summary(run: _Run, held: Mapping[int, Holders]) -> str:
    places = {executor.place for executor in run.executors}
    at_home = sum(place in held.get(number, {}) for number, place in enumerate(run.placed))
    return f"{len(run.placed)} partitions on {len(places)} nodes, {at_home} where their state is"
