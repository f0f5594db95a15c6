"""A driver under one of the matrix' Sparks: ``python -m tests.matrix.job PLAN``. It prints a line of JSON for each query.

The plan (``Plan``) names the queries, which run side by side in one session that ``configure`` has set up: up to the end of
their input, or until the driver is killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession

from holdfast_spark import configure
from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.state_settings import fit_format_to_provider
from tests.matrix.queries import BY_NAME, SCHEMA, Kind, difference, results_of
from tests.support.spark.shapes import StateShape, at_the_pace_of_tests

_SECONDS = 1500
_LOOK_SECONDS = 0.1
_BUSY = "Python worker failed to connect back"
"""Spark gives a Python ten seconds to start, however busy the machine is."""
_AT_ONCE = 8
"""Queries, whose state stores and Pythons must have room in memory beside each other."""
_SMALL = {
    "spark.driver.memory": "1500m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    **at_the_pace_of_tests(maintenance="1s", min_batches=4, deltas_for_snapshot=2),
}
BATCHES_RETAINED = 4
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_JVM_OPTIONS = ("-XX:MetaspaceSize=256m", "-XX:NewSize=128m", "-XX:InitialRAMPercentage=12.5")
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDB"
_COMPACTION = "spark.sql.streaming.fileSink.log.compactInterval", "3"


@dataclass(frozen=True)
class Query:
    """A query of the matrix: its ``kind``, how it keeps state (None: as ``configure`` says), and its directories."""

    name: str
    kind: str
    shape: StateShape | None
    checkpoint: str
    input: str
    output: str
    is_original: bool = True


@dataclass(frozen=True)
class Plan:
    """The work of a driver, with ``settings`` beside those of ``configure``; with ``forever`` the queries never end."""

    driver: str
    socket: str
    queries: list[Query]
    settings: dict[str, str]
    forever: bool = False

    def write(self, path: Path) -> None:
        """Write it to ``path``."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read what ``write`` wrote."""
        read = json.loads(path.read_text())
        read["queries"] = [
            Query(**{**each, "shape": each["shape"] and StateShape(**each["shape"])}) for each in read["queries"]
        ]
        return cls(**read)


def main(path: Path) -> None:
    """Run the queries of a plan."""
    plan = Plan.read(path)
    spark = _session(plan)
    if plan.forever:
        _run_forever(spark, plan)
    if Path(str(spark.conf.get("spark.local.dir")), "../../classes.names").exists():
        _say(classes=_attempt(partial(_check_jvm, spark))[1])
    for first in range(0, len(plan.queries), _AT_ONCE):
        _run(spark, plan, plan.queries[first : first + _AT_ONCE])
    _say(placement=_attempt(Cluster(spark).prepare)[1])
    spark.stop()


def _run_forever(spark: SparkSession, plan: Plan) -> NoReturn:
    """Run all queries side by side, up to the end of the driver; start those again whose Python came too late."""
    running = {query.name: _start(spark, plan, query) for query in plan.queries}
    while True:
        for query in plan.queries:
            _, problem = _attempt(partial(running[query.name].awaitTermination, _LOOK_SECONDS))
            if _BUSY in problem:
                running[query.name] = _start(spark, plan, query)
            elif problem:
                sys.exit(f"{query.name}: {problem}")


def _run(spark: SparkSession, plan: Plan, queries: list[Query]) -> None:
    """Run queries side by side, and say what came of each."""
    running = [(query, *_attempt(partial(_start, spark, plan, query))) for query in queries]
    for query, started, problem in running:
        if not problem:
            _, problem = _attempt(partial(_end, started))
        if _BUSY in problem:  # once more, by itself
            _, problem = _attempt(partial(_start_and_end, spark, plan, query))
        if not problem:
            problem = difference(BY_NAME[query.kind], Path(query.input), _results(spark, query))
        _say(query=query.name, problem=problem, unread=_unread(spark, query) if query.is_original else "")


def _session(plan: Plan) -> SparkSession:
    builder = configure(SparkSession.builder.master("local[2]"), name=plan.driver, socket=plan.socket)
    for key, value in {**_SMALL, **plan.settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _check_jvm(spark: SparkSession) -> None:
    """Return when the JVM has a class that the queries to come need: an earlier driver has had it. Check its options."""
    jvm: Any = spark.sparkContext._jvm
    options = list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert set(_JVM_OPTIONS) <= set(options), f"the JVM has {options}"
    written = Path(str(spark.conf.get("spark.local.dir")), "loaded")
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        jvm.io.holdfast.spark.ClassNames.write(str(written))
        if _STATE_STORE in written.read_text().splitlines():
            return
    raise TimeoutError(f"{_STATE_STORE} is not loaded")


def _start(spark: SparkSession, plan: Plan, query: Query) -> Any:
    kind = BY_NAME[query.kind]
    is_plain = query.shape is None and not kind.settings
    own = spark if is_plain else spark.newSession()  # of which no listener hears that configure has added
    for key, value in (*(query.shape.settings() if query.shape else {}).items(), *kind.settings, _COMPACTION):
        own.conf.set(key, value)
    fit_format_to_provider(own)
    rows = own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).csv(query.input).withWatermark("t", "1 day")
    writer = kind.query(rows).writeStream.outputMode(kind.mode).option("checkpointLocation", f"file://{query.checkpoint}")
    Path(query.output).mkdir(exist_ok=True)
    if kind.has_file_sink:
        writer = writer.format("json").option("path", query.output)
    else:
        writer = writer.foreachBatch(_writing_to(Path(query.output)))
    return writer.trigger(**({"processingTime": "500 milliseconds"} if plan.forever else {"availableNow": True})).start()


def _writing_to(output: Path) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, number: int) -> None:
        hidden = output / f".{number}"
        hidden.write_text(json.dumps([list(row) for row in frame.collect()]))
        hidden.rename(output / f"{number}.json")

    return write


def _end(started: Any) -> None:
    if not started.awaitTermination(_SECONDS):
        raise TimeoutError(f"the query has not ended after {_SECONDS} s")


def _start_and_end(spark: SparkSession, plan: Plan, query: Query) -> None:
    _end(_start(spark, plan, query))


def _results(spark: SparkSession, query: Query) -> Any:
    kind: Kind = BY_NAME[query.kind]
    if not kind.has_file_sink:
        return results_of(kind, Path(query.output))
    return type(kind.expected([]))(tuple(row) for row in spark.read.json(query.output).collect())


def _unread(spark: SparkSession, query: Query) -> str:
    """Read the query's state by Spark's own data sources, which there are since 4.0; say what is wrong."""
    options = {"join": {"joinSide": "left"}, "transformWithState": {"stateVarName": "value"}}
    kind = query.kind.partition(",")[0]

    def read() -> None:
        own = spark.newSession()
        if query.shape is not None:
            own.conf.set(_FORMAT, query.shape.checkpoint_format)  # as docs/spark.md says
        assert own.read.format("state-metadata").load(query.checkpoint).collect()
        assert own.read.format("statestore").options(**options.get(kind, {})).load(query.checkpoint).collect()

    return _attempt(read)[1]


def _attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """Return what an action returns, and ""; or None, and why it fails."""
    try:
        return action(), ""
    except Exception as problem:  # noqa: BLE001 it is told
        return None, f"{type(problem).__name__}: {problem}"[:1500]


def _say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
