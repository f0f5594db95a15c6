"""A driver that does not call ``spark.stop()`` ends without the stack traces of the JVM that it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.daemons.node import Node

DRIVER = """
from pyspark.sql import SparkSession
from holdfast_spark import checkpoint_location, configure

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.sql.shuffle.partitions", "1"), name="unstopped").getOrCreate()
lines = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
writer = lines.writeStream.format("noop").option("checkpointLocation", checkpoint_location("unstopped"))
query = writer.trigger(processingTime="{interval}").start()
while query.lastProgress is None or {is_over}:
    query.awaitTermination(1)
print("the end", flush=True)
{last}
"""


IN_A_BATCH = {"interval": "0 seconds", "is_over": "not query.status['isTriggerActive']"}
BETWEEN_BATCHES = {"interval": "1 hour", "is_over": "query.status['isTriggerActive']"}
"""Spark itself logs errors if a program stops a query in the middle of a batch."""


@pytest.mark.parametrize(
    ("last", "when"),
    [("", IN_A_BATCH), ("query.stop()", BETWEEN_BATCHES), ("spark.stop()", BETWEEN_BATCHES)],
    ids=["in a batch", "query stopped", "session stopped"],
)
def test_the_end_of_a_driver_is_silent(node: Node, last: str, when: dict[str, str]) -> None:
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = [sys.executable, "-c", DRIVER.format(last=last, **when)]
    ended = subprocess.run(driver, capture_output=True, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr
    traces = [line for line in ended.stderr.splitlines() if " ERROR " in line or line.startswith(("\tat ", "Caused by"))]
    assert traces == []
