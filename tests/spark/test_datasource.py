"""The data source ``holdfast``: a live listing, and a daemon's events as a batch and as a stream."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.remote import UploadSource
from holdfast_spark.datasource import register
from holdfast_spark.stores import StoreAddress
from tests.spark.running import started
from tests.support.daemons.node import Node
from tests.support.stores.s3 import Versitygw

pytestmark = pytest.mark.timeout(1800)


def test_what_a_store_holds_on_s3(spark: SparkSession, s3_versitygw: Versitygw) -> None:
    server = s3_versitygw.below("listing")
    store = StoreAddress(server.url, server.options).open()
    for job in range(3):
        for number in range(4):
            store.write(f"job-{job}/shared/{number}", UploadSource(number, data=b"x" * number), {}, create_only=False)
    register(spark)
    reader = spark.read.format("holdfast").options(**{f"store.{name}": value for name, value in server.options.items()})
    found = {row.key: row for row in reader.option("prefix", "job-1").load(server.url).collect()}
    expected = {info.key: info for info in store.list_tree("job-1")}
    assert found.keys() == expected.keys()
    for key, info in expected.items():
        row = found[key]
        assert (row.size_bytes, row.etag, row.modified_ns, row.is_directory) == (
            info.size_bytes,
            info.etag,
            info.modified_ns,
            False,
        )


def test_what_has_come_or_changed_in_a_store_as_a_stream(spark: SparkSession, workspace: Path) -> None:
    (workspace / "store").mkdir()
    store = StoreAddress(f"file://{workspace}/store").open()
    register(spark)

    def put(*keys: str) -> None:
        for key in keys:
            store.write(key, UploadSource(1, data=b"x"), {}, create_only=False)

    def come() -> set[str]:
        """Carry the stream on to now, and return what there was in the batch."""
        objects = spark.readStream.format("holdfast").option("lag", "0").load(store.url).where("not is_directory")
        batches = objects.writeStream.trigger(availableNow=True).option("checkpointLocation", str(workspace / "progress"))
        keys: set[str] = set()
        sink = batches.foreachBatch(lambda batch, _: keys.update(row.key for row in batch.collect()))
        started(sink.start, StreamingQuery.awaitTermination)
        return keys

    put("a/1", "a/2", "b/1")
    assert come() == {"a/1", "a/2", "b/1"}
    put("a/2", "c/1")
    assert come() == {"a/2", "c/1"}


def test_events_as_a_batch_and_as_a_stream(spark: SparkSession, node: Node) -> None:
    register(spark)
    now = spark.read.format("holdfast").option("socket", str(node.socket)).load()
    with node.client() as client:
        expected = [(event.number, event.kind) for event in client.events()]
    assert [(row.number, row.kind) for row in now.orderBy("number").collect()] == expected
    (mounted,) = now.where("kind = 'mounted'").collect()
    assert mounted.fields["mountpoint"] == str(node.mountpoint)

    def start(name: str, **options: str) -> StreamingQuery:
        source = spark.readStream.format("holdfast").options(**options).load()
        sink = source.writeStream.format("memory").queryName(name)
        return started(sink.start, StreamingQuery.processAllAvailable)

    queries = [start("of_journal", journal=str(node.store / "events.jsonl")), start("of_socket", socket=str(node.socket))]
    with node.client() as client:
        client.acquire("worker", "7", os.getpid())
    node.wait_event("workdir-acquired")
    for query in queries:
        query.processAllAvailable()
        query.stop()
        kinds = [row.kind for row in spark.table(query.name).collect()]
        assert kinds.count("workdir-acquired") == 1
        assert kinds[: len(expected)] == [kind for _, kind in expected]


def test_what_can_not_be_is_told(spark: SparkSession, node: Node) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="takes one of the options store, journal and socket"):
        spark.read.format("holdfast").load()
    with pytest.raises(PySparkException, match="the option parts must be a whole number, not 'x'"):
        spark.read.format("holdfast").option("parts", "x").load(f"file://{node.store}").collect()
