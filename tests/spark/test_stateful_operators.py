"""Each operator that keeps state: where it has it is known before its first batch, and verify knows it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.interface import StatefulOperator
from holdfast_spark.placement.cluster import Cluster
from holdfast_spark.placement.operators import DEFAULT_STORE, JOIN_STORES, operators_of_checkpoint, operators_of_plan
from holdfast_spark.state_settings import state_settings
from tests.support.checkpoints.damages import verified

PARTITIONS = 2
ONE = (DEFAULT_STORE,)


def aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count()


def deduplication(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key"])


def deduplication_in_watermark(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["key"])


def session_windows(rows: DataFrame) -> DataFrame:
    return rows.groupBy(f.session_window("timestamp", "1 minute"), "key").count()


def windows_above_deduplication(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["key", "timestamp"]).groupBy(f.window("timestamp", "1 minute")).count()


def join(rows: DataFrame) -> DataFrame:
    other = rows.selectExpr("key AS other", "timestamp AS at")
    return rows.join(other, f.expr("key = other AND at BETWEEN timestamp AND timestamp + INTERVAL 1 HOUR"))


def pandas_with_state(rows: DataFrame) -> DataFrame:
    def count(key: tuple[Any, ...], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        frame = next(frames)
        state.update((len(frame) + (state.get[0] if state.exists else 0),))
        yield frame[["key"]].head(1)

    grouped = rows.groupBy("key")
    return grouped.applyInPandasWithState(count, "key long", "count long", "update", GroupStateTimeout.NoTimeout)


class Latest(StatefulProcessor):
    """Keeps a value, a list and a map, each in a column family of its own."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "key long")
        self.list = handle.getListState("list", "key long")
        self.map = handle.getMapState("map", "key long", "count long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        for row in rows:
            self.value.update((row.key,))
            self.list.appendValue((row.key,))
            self.map.updateValue((row.key,), (1,))
        yield from ()

    def close(self) -> None:
        """Nothing is open."""


def transform_with_state(rows: DataFrame) -> DataFrame:
    grouped: Any = rows.groupBy("key")
    made: DataFrame = grouped.transformWithState(Latest(), "key long", "Update", "None")
    return made


@pytest.mark.parametrize(
    ("query", "mode", "stores"),
    [
        (aggregation, "update", [ONE]),
        (deduplication, "update", [ONE]),
        (deduplication_in_watermark, "update", [ONE]),
        (session_windows, "append", [ONE]),
        (windows_above_deduplication, "update", [ONE, ONE]),
        (join, "append", [JOIN_STORES]),
        (pandas_with_state, "update", [ONE]),
        (transform_with_state, "update", [ONE]),
    ],
)
def test_where_an_operator_keeps_its_state_is_known_before_its_first_batch(
    spark: SparkSession, workspace: Path, query: Callable[[DataFrame], DataFrame], mode: str, stores: list[tuple[bytes, ...]]
) -> None:
    checkpoint = workspace / "checkpoint"
    own = spark.newSession()
    for key, value in state_settings().items():
        if key.startswith("spark.sql."):
            own.conf.set(key, value)
    own.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    rows = own.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()
    rows = rows.withColumnRenamed("value", "key").withWatermark("timestamp", "1 day")
    writer = query(rows).writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    cluster = Cluster(own)
    asked = cluster.query(running.id)
    assert asked is not None
    known = operators_of_plan(cluster.plan(asked), PARTITIONS)
    assert known == [StatefulOperator(number, PARTITIONS, each) for number, each in enumerate(stores)]
    assert running.awaitTermination(240)
    assert operators_of_checkpoint(checkpoint) == known
    names = (bytes(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    files = [file for file in map(FORMATS.state_file, names) if file is not None]
    assert {(file.store.operator, file.store.name) for file in files if file.version} == {
        (number, store) for number, each in enumerate(stores) for store in each
    }
    newest = [each for each in verified(checkpoint) if each.is_newest]
    assert [each.is_good for each in newest] == [True], newest
