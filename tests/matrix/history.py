"""Runs the queries of one Spark: kills, a sweep, copies, a rewind, and the checkpoints of earlier Sparks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from holdfast.control.client import ControlClient
from holdfast.control.messages import CloneRequest, RewindRequest, SweepRequest, VerifyRequest
from holdfast.errors import HoldfastError
from tests.matrix.job import BATCHES_RETAINED, Plan, Query
from tests.matrix.operations import CLASSES, CLONE, KILL, LINKS, PLACEMENT, READ, REWIND, SWEEP, VERIFY, other_version
from tests.matrix.outcomes import Outcomes
from tests.matrix.queries import BY_NAME, put_input
from tests.matrix.sparks import Spark
from tests.support.daemons.node import Node, wait_until
from tests.support.spark.shapes import SHAPES, StateShape

_FILES = 4
_COMMITS_BEFORE_THE_KILL = 3
_BATCHES_BACK = 1
_SECONDS = 1800.0
"""The longest silence of a driver, and the longest wait for its first batches: it hangs then, on any machine."""
_PROVIDER_OF_LINKS = "RocksDB"
_IN_EACH_SHAPE = ("aggregation",)
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_HAS_FORMAT_2 = (4, 0)
_MIXES_FORMATS = (4, 3)
_READS_STATE = (4, 0)
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Short jobs take half as long with it. It is none with which a job would keep an option of ``configure`` out."""


@dataclass(frozen=True)
class Sessions:
    """The way in which the sessions of a history keep state: as ``configure`` says, or all of it in format 2.

    Under 4.0 a JVM with queries of both formats fails: what it expects of snapshots is one for all. Only from 4.3 on, each
    query keeps its own.
    """

    name: str
    settings: dict[str, str]
    shapes: tuple[StateShape | None, ...]

    def is_for(self, later: Sessions) -> bool:
        """Say whether sessions of a later Spark take over what these have left."""
        return set(self.shapes) <= set(later.shapes)


@dataclass(frozen=True)
class Left:
    """The queries that the history of ``spark`` has left, at rest, and the sessions that they ran in."""

    spark: Spark
    sessions: Sessions
    queries: list[Query]


class History:
    """The queries of one Spark, over ``node``. ``directory`` has their input and output, and what the drivers say."""

    def __init__(self, spark: Spark, sessions: Sessions, node: Node, directory: Path, outcomes: Outcomes) -> None:
        self.spark = spark
        self._sessions = sessions
        self._python = spark.python()
        self._node = node
        self._directory = directory / f"{spark.version}-{sessions.name}"
        self._zone = node.checkpoints / self._directory.name
        self._outcomes = outcomes
        self._input = self._directory / "in"

    @property
    def name(self) -> str:
        """The name of its directories."""
        return self._directory.name

    def left(self, kinds: Iterable[str]) -> Left:
        """Return what ``live`` leaves; there are no queries if this Spark, or this format, has none of these kinds."""
        shapes = self._sessions.shapes
        queries = [self._query(kind, shape) for shape in shapes for kind in kinds if self._knows(kind, shape)]
        return Left(self.spark, self._sessions, queries)

    def live(self, kinds: Iterable[str], before: Iterable[Left]) -> None:
        """Kill queries of these kinds, sweep, copy and rewind them, go on, and go on from what earlier Sparks have left.

        What was there of an earlier life is removed.
        """
        queries = self.left(kinds).queries
        for directory in (self._directory, self._zone):
            shutil.rmtree(directory, ignore_errors=True)
        (self._directory / "out").mkdir(parents=True)
        self._input.mkdir()
        for _ in range(_FILES):
            put_input(self._input)
        if not queries:
            return
        self._run_and_kill(queries)
        copies = self._copies(queries, CLONE, "copy")
        groups = {KILL: queries, CLONE: [copy for copy in copies if self._attempt(REWIND, copy, self._rewind)]}
        for query in queries:
            self._attempt(VERIFY, query, self._verify)
        self._sweep(queries)
        groups.update(self._copies_of(before))
        put_input(self._input)
        self._go_on(groups)

    def go_back(self, later: Iterable[Left]) -> None:
        """Go on from what later Sparks have left, in so far as this one has such queries."""
        known = [
            replace(left, queries=[query for query in left.queries if self._knows(query.kind, query.shape)])
            for left in later
        ]
        groups = self._copies_of(left for left in known if left.queries)
        if any(groups.values()):
            self._go_on(groups)

    def _copies_of(self, others: Iterable[Left]) -> dict[str, list[Query]]:
        """Copy what other Sparks have left, with more input for each; return the copies by operation."""
        groups: dict[str, list[Query]] = {}
        for left in others:
            operation = other_version(left.spark.short)
            groups.setdefault(operation, []).extend(self._copies(left.queries, operation, left.spark.short))
            put_input(Path(left.queries[0].input))
        return groups

    def _knows(self, kind: str, shape: StateShape | None) -> bool:
        return (
            shape in self._sessions.shapes
            and BY_NAME[kind].since <= self.spark.release
            and (shape is None or kind in _IN_EACH_SHAPE)
        )

    def _query(self, kind: str, shape: StateShape | None) -> Query:
        words = kind.replace(",", "").replace(" ", "-")
        name = f"{words}-{shape.name}" if shape else words
        return self._at(Query(name, kind, shape, "", str(self._input), ""), name)

    def _at(self, query: Query, name: str) -> Query:
        """Return the query with another name, and a checkpoint and output of its own."""
        checkpoint, output = self._zone / name, self._directory / "out" / name
        return replace(query, name=name, checkpoint=str(checkpoint), output=str(output), is_original=name == query.name)

    def _run_and_kill(self, queries: list[Query]) -> None:
        """Run the queries side by side; SIGKILL all of the driver's processes when each has some commits."""
        with self._driver(queries, forever=True) as driver:
            logs = [Path(query.checkpoint) / "commits" for query in queries]
            wait_until(
                lambda: (
                    driver.poll() is not None
                    or all(len(list(log.glob("[0-9]*"))) >= _COMMITS_BEFORE_THE_KILL for log in logs)
                ),
                _SECONDS,
            )
            assert driver.poll() is None, f"the driver has ended: {self._said()[-1500:]}"
            keeping = [query for query in queries if query.shape is None or query.shape.provider == _PROVIDER_OF_LINKS]
            problem = ""
            try:  # Spark uploads snapshots in the background, and deletes them too: one look that finds a link is enough
                wait_until(lambda: self._has_links(keeping))
            except AssertionError:
                problem = "no local SST is a link"
            if None in self._sessions.shapes:  # queries that the driver hears of, whose names of classes the next one has
                wait_until((self._workdir / "classes.names").exists, _SECONDS)
        self._outcomes.note(self.spark, LINKS, None, problem)

    def _has_links(self, queries: list[Query]) -> bool:
        """Say whether a file of the driver's local state is also one of the checkpoints'."""
        stored = {inode for query in queries for inode in _inodes(Path(query.checkpoint), "state/**/*.sst")}
        return not stored.isdisjoint(_inodes(self._workdir, "tmp/**/*.sst"))

    def _verify(self, client: ControlClient, query: Query) -> None:
        *_, last = client.verify_checkpoints(VerifyRequest(query.checkpoint, deep=True, spark=self.spark.short))
        newest = [each for each in last.restores if each.newest]
        assert [each.restorable for each in newest] == [True], f"{newest}"[:500]

    def _sweep(self, queries: list[Query]) -> None:
        """Sweep as soon as the driver is dead: what goes then is what no restart needs."""
        with self._node.client() as client:
            plan = client.plan_sweep(
                SweepRequest(str(self._zone), grace_seconds=0.0, min_batches_to_retain=BATCHES_RETAINED)
            )
            *_, last = client.execute(plan.id)
        kept = [each.why for each in plan.kept]
        self._outcomes.note(self.spark, SWEEP, None, f"kept: {kept}"[:500] if kept or not last.finished else "")
        for query in queries:
            self._attempt(SWEEP, query, self._verify)

    def _copies(self, queries: list[Query], operation: str, prefix: str) -> list[Query]:
        pairs = [(query, self._at(query, f"{prefix}-{query.name}")) for query in queries]
        return [copy for query, copy in pairs if self._attempt(operation, query, partial(_copy, copy))]

    def _rewind(self, client: ControlClient, query: Query) -> None:
        newest = max(int(path.name) for path in Path(query.checkpoint, "commits").glob("[0-9]*"))
        plan = client.plan_rewind(RewindRequest(query.checkpoint, newest - _BATCHES_BACK, idle_seconds=0))
        *_, last = client.execute(plan.id)
        assert last.finished
        for entry in Path(query.output).glob("_spark_metadata/[0-9]*"):  # as docs/checkpoints.md says
            if int(entry.name.partition(".")[0]) > newest - _BATCHES_BACK:
                entry.unlink()

    def _attempt(self, operation: str, query: Query, action: Callable[[ControlClient, Query], object]) -> bool:
        """Do something to a query by the daemon; note what is wrong. Return whether it could be done."""
        try:
            with self._node.client() as client:
                action(client, query)
        except (HoldfastError, AssertionError) as problem:
            self._outcomes.note(self.spark, operation, query, f"{operation}: {problem}")
            return False
        self._outcomes.note(self.spark, operation, query, "")
        return True

    def _go_on(self, groups: Mapping[str, list[Query]]) -> None:
        """Let all queries come to the end of their input in one driver, and note for each group what came of it."""
        operations = {query.name: (operation, query) for operation, group in groups.items() for query in group}
        with self._driver([query for group in groups.values() for query in group]) as driver:
            self._wait_while_it_speaks(driver)
        told: set[str] = set()
        for line in self._said().splitlines():
            facts = json.loads(line) if line.startswith("{") else {}
            if "classes" in facts:
                self._outcomes.note(self.spark, CLASSES, None, facts["classes"])
            if "placement" in facts:
                self._outcomes.note(self.spark, PLACEMENT, None, facts["placement"])
            if "query" in facts:
                operation, query = operations[facts["query"]]
                told.add(query.name)
                self._outcomes.note(self.spark, operation, query, facts["problem"])
                if query.is_original and self.spark.release >= _READS_STATE:
                    self._outcomes.note(self.spark, READ, query, facts["unread"])
        for name in operations.keys() - told:
            self._outcomes.note(self.spark, *operations[name], f"the driver has died or hangs: {self._said()[-1000:]}")

    def _wait_while_it_speaks(self, driver: subprocess.Popen[bytes]) -> None:
        """Return when a driver has ended, or has said nothing for ``_SECONDS``."""
        heard: str | None = None
        while driver.poll() is None and (said := self._said()) != heard:
            heard = said
            with suppress(subprocess.TimeoutExpired):
                driver.wait(_SECONDS)

    @property
    def _workdir(self) -> Path:
        return self._node.work / f"driver_{self._driver_name}"

    @property
    def _driver_name(self) -> str:
        return f"matrix-{self._directory.name}".replace(".", "-")

    def _said(self) -> str:
        """Return what the last driver has said."""
        return (self._directory / f"driver-{len(self._plans())}.log").read_text(errors="replace")

    def _plans(self) -> list[Path]:
        return list(self._directory.glob("driver-*.json"))

    @contextmanager
    def _driver(self, queries: list[Query], *, forever: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """Run a driver. At the end all of its processes are killed."""
        number = len(self._plans()) + 1
        plan, log = (self._directory / f"driver-{number}.{kind}" for kind in ("json", "log"))
        Plan(self._driver_name, str(self._node.socket), queries, self._sessions.settings, forever).write(plan)
        environment = {**os.environ, **self._environment()}
        command = [str(self._python), "-m", "tests.matrix.job", str(plan)]
        with log.open("wb") as stream:
            driver = subprocess.Popen(
                command, env=environment, cwd=self._directory, stdout=stream, stderr=stream, start_new_session=True
            )
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):  # the driver was waited for, and its JVM has followed it
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()

    def _environment(self) -> dict[str, str]:
        local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "JAVA_TOOL_OPTIONS": _JAVA_OPTIONS}
        return {**local, **self.spark.environment()}


def sessions_of(spark: Spark) -> list[Sessions]:
    """Return the ways in which sessions of a Spark keep state."""
    if spark.release >= _MIXES_FORMATS:
        return [Sessions("configured", {}, (None, *SHAPES))]
    first = tuple(shape for shape in SHAPES if shape.checkpoint_format == 1)
    second = tuple(shape for shape in SHAPES if shape.checkpoint_format == 2)
    configured = Sessions("configured", {}, (None, *first))
    return [configured, *([Sessions("format-2", {_FORMAT: "2"}, second)] if spark.release >= _HAS_FORMAT_2 else [])]


def _copy(copy: Query, client: ControlClient, query: Query) -> None:
    for directory in (copy.checkpoint, copy.output):  # of a step that was interrupted
        shutil.rmtree(directory, ignore_errors=True)
    *_, last = client.clone(CloneRequest(query.checkpoint, copy.checkpoint))
    assert last.finished
    shutil.copytree(query.output, copy.output, ignore=shutil.ignore_patterns(".*.crc"))
    for entry in Path(copy.output).glob("_spark_metadata/*"):  # as docs/checkpoints.md says
        entry.write_text(entry.read_text().replace(f"{query.output}/", f"{copy.output}/"))


def _inodes(directory: Path, pattern: str) -> Iterator[int]:
    for path in directory.glob(pattern):
        with suppress(FileNotFoundError):  # Spark deletes what it no longer needs
            yield path.stat().st_ino
