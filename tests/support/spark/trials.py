"""Restarts of real queries from the samples of checkpoints, in one JVM: does Spark go on, and with the right state?

A sample is laid out in a directory of its own, with its source logs naming the input there. A trial starts the sample's
query on a copy, when one more file of input has arrived, and notes what each batch came to. What the query comes to from an
undamaged copy is the measure.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.data.checkpoints.make_spark import SAMPLES, Sample, put_input, result_of, settings_of
from tests.support.checkpoints.samples import DIRECTORY

_MADE_IN = b"file:///mnt/golden/"
_SEEN_AT = re.compile(rb'"timestamp":\d+')
_NEXT_INPUT = 1004
_KEYS = 5
_SECONDS = 180

BY_NAME = {f"spark-{each.name}": each for each in SAMPLES}


@dataclass(frozen=True)
class Outcome:
    """What a restart came to: for each batch its rows, and how many the state has then; or why there is none."""

    batches: tuple[tuple[int, tuple[tuple[object, ...], ...]], ...] = ()
    state_rows: tuple[int, ...] = ()
    problem: str = ""

    @property
    def answer(self) -> tuple[object, ...]:
        """What the query came to in the end: of each key its last value, and how many the state has."""
        rows = [
            tuple(cell for cell in row if not isinstance(cell, datetime)) for _, of_batch in self.batches for row in of_batch
        ]
        return tuple(sorted({row[:1]: row for row in rows}.items())), max(self.state_rows, default=0)


class Laid:
    """A sample in ``directory``: ``checkpoint`` beside ``in``."""

    def __init__(self, name: str, directory: Path) -> None:
        self.sample: Sample = BY_NAME[name]
        self.checkpoint = directory / "checkpoint"
        self.input = directory / "in"
        self.input.mkdir(parents=True)
        for number in range(self.sample.batches):
            put_input(self.input, number)
        self.checkpoint.mkdir()
        subprocess.run(["tar", "-xzf", DIRECTORY / f"{name}.tar.gz", "-C", self.checkpoint], check=True)
        now = b'"timestamp":%d' % (time.time_ns() // 1_000_000)  # a source forgets files a week after it has seen them
        for log in self.checkpoint.glob("sources/*/[0-9]*"):
            there = log.read_bytes().replace(_MADE_IN + self.sample.name.encode(), b"file://" + bytes(directory))
            log.write_bytes(_SEEN_AT.sub(now, there))
        for sidecar in self.checkpoint.rglob(".*.crc"):
            sidecar.unlink()  # a store has none: they stay on the node

    def arrive(self, more: int = 0) -> None:
        """Let one more file of input arrive, that has all keys; another one for each ``more``."""
        put_input(self.input, _NEXT_INPUT + _KEYS * more)

    def batch_answer(self, spark: SparkSession) -> object:
        """Return what a batch computation over all input comes to, as ``Outcome.answer`` has it."""
        rows = spark.read.schema("k int, v int").csv(str(self.input)).groupBy("k").sum("v").collect()
        return tuple(sorted((tuple(row)[:1], tuple(row)) for row in rows)), len(rows)


def cut(checkpoint: Path, batch: int) -> None:
    """Take a checkpoint back to the commit of ``batch``, as a rewind does."""
    for path in (*checkpoint.glob("commits/*"), *checkpoint.glob("offsets/*")):
        if path.name.isdigit() and int(path.name) > batch:
            path.unlink()


def session(local: Path) -> SparkSession:
    """Return a Spark on this machine."""
    builder = SparkSession.builder.master("local[2]").appName("trials")
    for name, value in (
        ("spark.driver.memory", "1g"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ("spark.local.dir", str(local)),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.streaming.stateStore.maintenanceInterval", "1h"),
        ("spark.task.maxFailures", "1"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.log.level", "OFF"),
    ):
        builder = builder.config(name, value)
    return builder.getOrCreate()


def restart(spark: SparkSession, laid: Laid, checkpoint: Path) -> Outcome:
    """Start the sample's query on ``checkpoint``, and let it come to the end of its input."""
    own = spark.newSession()
    for key, value in settings_of(laid.sample).items():
        own.conf.set(key, value)
    batches: list[tuple[int, tuple[tuple[object, ...], ...]]] = []

    def note(frame: DataFrame, number: int) -> None:
        batches.append((number, tuple(sorted((tuple(row) for row in frame.collect()), key=repr))))

    result, mode = result_of(own, laid.sample, laid.input)
    writer = result.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint)).foreachBatch(note)
    query: StreamingQuery | None = None
    try:
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(_SECONDS):
            return Outcome(problem="it does not end")
        rows = tuple(operator.numRowsTotal for each in query.recentProgress for operator in each.stateOperators)
        return Outcome(tuple(batches), rows)
    except (PySparkException, Py4JError) as problem:
        return Outcome(problem=str(problem))
    finally:
        if query is not None:
            query.stop()


def tried(spark: SparkSession, laid: Laid, scratch: Path, spoil: Callable[[Path], None]) -> Outcome:
    """Restart from a copy of the checkpoint, below ``scratch``, that ``spoil`` was given."""
    copy = scratch / uuid.uuid4().hex  # Spark may still upload state in the background to the one before
    shutil.copytree(laid.checkpoint, copy)
    spoil(copy)
    outcome = restart(spark, laid, copy)
    shutil.rmtree(copy, ignore_errors=True)
    return outcome


def answers(spark: SparkSession, laid: Laid, scratch: Path, batches: Iterable[int]) -> dict[int, object]:
    """Return what the query comes to from each of these batches when nothing is damaged."""
    found = {batch: tried(spark, laid, scratch, partial(cut, batch=batch)) for batch in batches}
    assert not any(each.problem for each in found.values()), found
    return {batch: outcome.answer for batch, outcome in found.items()}
