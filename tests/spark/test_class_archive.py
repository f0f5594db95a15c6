"""Drivers start with the classes that an earlier one in their working directory has left, if not a bit of them is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.daemons.node import Node

DRIVER = """
import json, os
from pyspark.sql import SparkSession
from holdfast_spark import checkpoint_location, configure

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
spark = configure(builder.config("spark.sql.shuffle.partitions", "1"), name="classes", class_archive=True).getOrCreate()
beans = spark._jvm.java.lang.management.ManagementFactory
options = [str(option) for option in beans.getRuntimeMXBean().getInputArguments()]
sharing = "sharing" in str(spark._jvm.java.lang.System.getProperty("java.vm.info"))
print(json.dumps([[each for each in options if "SharedArchive" in each or "ClassList" in each], sharing]), flush=True)
lines = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
query = lines.writeStream.format("noop").option("checkpointLocation", checkpoint_location("classes")).start()
while query.lastProgress is None or query.lastProgress.batchId < {batches}:
    query.awaitTermination(0.1)
if {waits}:
    while not os.path.exists(os.path.dirname(spark.conf.get("spark.local.dir")) + "/../classes.jsa"):
        query.awaitTermination(0.1)
query.stop()
spark.stop()
"""


def driven(node: Node, batches: int, *, waits: bool = False) -> tuple[list[str], bool, str]:
    """Run a driver, until there is an archive if it ``waits``.

    Return the options of its JVM about classes, whether it uses an archive, and what it has logged.
    """
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = [sys.executable, "-c", DRIVER.format(batches=batches, waits=waits)]
    ended = subprocess.run(driver, capture_output=True, text=True, check=True, env=environment)
    options, sharing = json.loads(ended.stdout)
    return options, sharing, ended.stderr


@pytest.mark.timeout(1_800)  # three drivers and an archive, with the processor for them only when nobody else has it
def test_a_driver_starts_with_the_classes_of_the_one_before_it(node: Node) -> None:
    archive = node.work / "driver_classes/classes.jsa"
    using = f"-XX:SharedArchiveFile={archive}"
    listing = f"-XX:DumpLoadedClassList={archive.parent}/tmp/spark/classes.list"
    assert driven(node, batches=4, waits=True)[:2] == ([listing], True)  # Java's own archive of its own classes
    assert driven(node, batches=1)[:2] == ([using], True)

    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    options, sharing, log = driven(node, batches=1)
    assert (options, sharing) == ([using], False)
    assert not [line for line in log.splitlines() if "cds" in line or "Traceback" in line]
    assert not archive.exists()
