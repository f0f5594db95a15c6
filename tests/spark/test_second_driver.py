"""What a user reads when a second driver works on the same checkpoint: on another node, by the way of the mount."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from holdfast_spark.second_driver import SecondDriverListener
from holdfast_spark.second_driver_errors import SecondDriverErrors
from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until


def test_the_query_of_the_slower_driver_ends_with_a_sentence(
    spark: SparkSession, make_node: NodeFactory, workspace: Path
) -> None:
    here, elsewhere = make_node("a").start(), make_node("b").start()
    arriving = workspace / "arriving"
    arriving.mkdir()
    (arriving / "0.txt").write_text("first")
    said = io.StringIO()
    errors = SecondDriverErrors(said)
    listener = SecondDriverListener(errors)
    spark.streams.addListener(listener)
    writer = spark.readStream.text(f"file://{arriving}").writeStream.format("noop").queryName("lines")
    query = writer.option("checkpointLocation", f"file://{here.checkpoints}/lines").start()
    try:
        query.processAllAvailable()
        offsets = elsewhere.checkpoints / "lines" / "offsets"
        (offsets / "1").write_bytes((offsets / "0").read_bytes())  # as another driver does
        (arriving / "1.txt").write_text("second")
        with pytest.raises(StreamingQueryException) as ended:
            query.processAllAvailable()
        errors.tell(str(ended.value), None)
        wait_until(lambda: errors._names == {})
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    (sentence,) = said.getvalue().splitlines()
    assert sentence.startswith("holdfast: the query lines has ended: another driver, here or on another node")
    assert f"the same checkpoint {here.checkpoints}/lines, and was first with" in sentence
