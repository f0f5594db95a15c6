"""Drivers start with the classes that an earlier one in their working directory has left, if not a bit of them is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.daemons.node import Node, wait_until

DRIVER = """
import json, time
from pyspark.sql import SparkSession
from holdfast_spark import checkpoint_location, configure

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
spark = configure(builder.config("spark.sql.shuffle.partitions", "1"), name="classes").getOrCreate()
beans = spark._jvm.java.lang.management.ManagementFactory
options = [str(option) for option in beans.getRuntimeMXBean().getInputArguments()]
sharing = "sharing" in str(spark._jvm.java.lang.System.getProperty("java.vm.info"))
print(json.dumps([[each for each in options if "SharedArchive" in each or "ClassList" in each], sharing]), flush=True)
lines = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
query = lines.writeStream.format("noop").option("checkpointLocation", checkpoint_location("classes")).start()
while query.lastProgress is None or query.lastProgress.batchId < {batches}:
    query.awaitTermination(0.1)
query.stop()
spark.stop()
"""
_ARCHIVE_SECONDS = 1_200.0


def driven(node: Node, batches: int) -> tuple[list[str], bool, str]:
    """Run a driver; return the options of its JVM about classes, whether it uses an archive, and what it has logged."""
    environment = {**os.environ, "HOLDFAST_SOCKET": str(node.socket), "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = [sys.executable, "-c", DRIVER.format(batches=batches)]
    ended = subprocess.run(driver, capture_output=True, text=True, check=True, env=environment)
    options, sharing = json.loads(ended.stdout)
    return options, sharing, ended.stderr


@pytest.mark.timeout(1_800)  # three drivers and an archive, with the processor for them only when nobody else has it
def test_a_driver_starts_with_the_classes_of_the_one_before_it(node: Node) -> None:
    archive = node.work / "driver_classes/classes.jsa"
    using = f"-XX:SharedArchiveFile={archive}"
    listing = f"-XX:DumpLoadedClassList={archive.parent}/tmp/spark/classes.list"
    assert driven(node, batches=4)[:2] == ([listing], True)  # Java's own archive of its own classes
    wait_until(archive.exists, _ARCHIVE_SECONDS)
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
