"""A job with state in RocksDB and a snapshot after each batch: ``SOCKET MASTER``. It prints a line of JSON.

``rows``: what the query has counted so far; ``local``: SSTs in Spark's local directories; ``linked``: those of them that are
one file with an SST of the checkpoint; ``stored``: SSTs there; ``checksums``: Hadoop's checksum files there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast_spark import checkpoint_location, configure

_SNAPSHOTS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def main(socket: str, master: str) -> None:
    builder = configure(SparkSession.builder.master(master).appName("linking"), name="linking", socket=socket)
    for key, value in (
        (_SNAPSHOTS, "false"),
        ("spark.ui.enabled", "false"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.executor.memory", "600m"),
    ):
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    checkpoint = checkpoint_location("linking", socket)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    counts = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    query = counts.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress is not None
    state = query.lastProgress["stateOperators"][0]
    at, work = Path(checkpoint.removeprefix("file://")), Path(checkpoint.removeprefix("file://")).parents[1] / "work"
    stored = {inode for path, inode in _files(at) if path.parent.name == "SSTs" and path.suffix == ".sst"}
    local = [inode for path, inode in _files(work) if path.suffix == ".sst"]
    checksums = [path for path, _ in _files(at) if path.name.startswith(".") and path.suffix == ".crc"]
    facts = {"rows": state["numRowsTotal"], "local": len(local), "linked": sum(each in stored for each in local)}
    print(json.dumps({**facts, "stored": len(stored), "checksums": len(checksums)}), flush=True)
    spark.stop()


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield what is below a directory, with inode numbers. Spark deletes files and directories meanwhile."""
    for root, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(root, name), os.stat(Path(root, name)).st_ino


if __name__ == "__main__":
    main(*sys.argv[1:])
