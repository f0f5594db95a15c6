"""A driver's JVM loads the classes that the one before it in the working directory has loaded, before a query needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.daemons.node import Node

OWN = "-XX:TieredStopAtLevel=1"
DRIVER = f"""
import json, os
from pyspark.sql import SparkSession
from holdfast_spark import checkpoint_location, configure

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
builder = builder.config("spark.driver.extraJavaOptions", "{OWN}").config("spark.sql.shuffle.partitions", "1")
spark = configure(builder, name="classes").getOrCreate()
local = spark.conf.get("spark.local.dir")

def has_state_store():
    spark._jvm.io.holdfast.spark.ClassNames.write(local + "/loaded")
    with open(local + "/loaded") as names:
        has_class = "org.apache.spark.sql.execution.streaming.state.RocksDB\\n" in names
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    with open("/proc/%d/maps" % pid) as mapped:
        return [has_class, "librocksdbjni" in mapped.read()]

loaded = has_state_store()
while {{waits}} and not all(loaded):
    loaded = has_state_store()
beans = spark._jvm.java.lang.management.ManagementFactory
print(json.dumps([loaded, [str(option) for option in beans.getRuntimeMXBean().getInputArguments()]]), flush=True)
lines = spark.readStream.format("rate").option("rowsPerSecond", 5).load().groupBy("value").count()
query = lines.writeStream.outputMode("update").format("noop").option("checkpointLocation", checkpoint_location("classes"))
query = query.start()
while not os.path.exists(local + "/../../classes.names") or query.lastProgress is None:
    query.awaitTermination(0.1)
query.stop()
spark.stop()
"""


def driven(node: Node, *, waits: bool) -> tuple[list[bool], list[str]]:
    """Run a driver until there are names. Return whether it had the state store's class, and whether RocksDB's library,
    before its query, and its JVM's options.

    If it ``waits``, its query begins only when both are there.
    """
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = [sys.executable, "-c", DRIVER.format(waits=waits)]
    ended = subprocess.run(driver, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    had, options = json.loads(ended.stdout)
    return had, options


@pytest.mark.timeout(1_800)  # two drivers, beside whatever else the machine does
def test_a_driver_has_the_classes_of_the_one_before_it_when_its_query_begins(node: Node) -> None:
    had, options = driven(node, waits=False)
    assert had == [False, False]
    ours = ["-XX:MetaspaceSize=256m", "-XX:NewSize=128m", "-XX:InitialRAMPercentage=12.5"]
    at = options.index(ours[0])
    assert options[at : at + 4] == [*ours, OWN]  # the job's own come last, and so win
    names = (node.work / "driver_classes/classes.names").read_text().splitlines()
    assert "org.apache.spark.sql.execution.streaming.state.RocksDB" in names
    assert driven(node, waits=True)[0] == [True, True]
