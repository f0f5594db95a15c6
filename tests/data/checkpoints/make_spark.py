"""Make the samples of Spark's checkpoints: real queries, small, with restarts and lost attempts. See README.md beside this.

``python -m tests.data.checkpoints.make_spark DIRECTORY`` writes ``spark-<sample>.tar.gz`` here; the checkpoints themselves
are left in DIRECTORY, whose path stands in the source logs.
"""

from __future__ import annotations

import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions

_STATE = "org.apache.spark.sql.execution.streaming.state."
_STATE_STORE = "spark.sql.streaming.stateStore."
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SECONDS_FOR_MAINTENANCE = 1.5


@dataclass(frozen=True)
class Sample:
    name: str
    provider: str = "RocksDBStateStoreProvider"
    checkpoint_format: int = 1
    changelog: bool = True
    codec: str = "lz4"
    join: bool = False
    batches: int = 9
    lost: tuple[int, ...] = ()
    """Batches whose sink fails once: their state is written, but they are not committed, and run again after a restart."""


SAMPLES = (
    Sample("rocksdb-1", changelog=False, lost=(4,)),
    Sample("rocksdb-1-changelog", lost=(4,)),
    Sample("rocksdb-2", checkpoint_format=2, changelog=False, lost=(3, 6)),
    Sample("rocksdb-2-changelog", checkpoint_format=2, batches=12, lost=(3, 7, 8, 10)),
    Sample("rocksdb-2-zstd", checkpoint_format=2, batches=3, codec="zstd"),
    Sample("join-2", checkpoint_format=2, join=True, batches=4, lost=(3,)),
    Sample("hdfs", provider="HDFSBackedStateStoreProvider", lost=(4,)),
)


def main(directory: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(directory / "local"))
        .config(f"{_STATE_STORE}maintenanceInterval", "1s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    for sample in SAMPLES:
        _run(spark, sample, directory / sample.name)
        with tarfile.open(Path(__file__).parent / f"spark-{sample.name}.tar.gz", "w:gz", compresslevel=9) as archive:
            archive.add(directory / sample.name / "checkpoint", "", filter=_anonymous)
    spark.stop()


def settings_of(sample: Sample) -> dict[str, str]:
    """Return the settings that the sample's query runs with."""
    return {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.minBatchesToRetain": "4",
        "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
        f"{_STATE_STORE}providerClass": _STATE + sample.provider,
        f"{_STATE_STORE}rocksdb.changelogCheckpointing.enabled": str(sample.changelog).lower(),
        f"{_STATE_STORE}checkpointFormatVersion": str(sample.checkpoint_format),
        f"{_STATE_STORE}minDeltasForSnapshot": "3",
        f"{_STATE_STORE}compression.codec": sample.codec,
    }


def result_of(spark: SparkSession, sample: Sample, arrived: Path) -> tuple[DataFrame, str]:
    """Return the sample's query over a directory of input, and its output mode."""
    source = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1).csv(str(arrived))
    return (_joined(source), "append") if sample.join else (source.groupBy("k").agg(functions.sum("v")), "update")


def _run(spark: SparkSession, sample: Sample, directory: Path) -> None:
    for key, value in settings_of(sample).items():
        spark.conf.set(key, value)
    (directory / "in").mkdir(parents=True)
    result, mode = result_of(spark, sample, directory / "in")
    to_lose = set(sample.lost)

    def start() -> Callable[[], None]:
        writer = result.writeStream.outputMode(mode).option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.foreachBatch(lambda frame, number: _write(frame, number, to_lose)).start()
        return lambda: _settle(query)

    for number in range(sample.batches):
        put_input(directory / "in", number)
        while True:
            try:
                start()()
                break
            except Exception as problem:
                if "lost on purpose" not in str(problem):
                    raise


def _settle(query: object) -> None:
    query.processAllAvailable()  # type: ignore[attr-defined]
    time.sleep(_SECONDS_FOR_MAINTENANCE)
    query.stop()  # type: ignore[attr-defined]


def _write(frame: DataFrame, number: int, to_lose: set[int]) -> None:
    frame.count()
    if number in to_lose:
        to_lose.discard(number)
        raise RuntimeError("lost on purpose")


def _joined(source: DataFrame) -> DataFrame:
    now = functions.current_timestamp()
    left = source.withColumn("t", now).withWatermark("t", "1 minute")
    right = source.selectExpr("k AS k2", "v AS v2").withColumn("t2", now).withWatermark("t2", "1 minute")
    return left.join(right, functions.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 1 MINUTE"))


def put_input(directory: Path, number: int) -> None:
    """Put a file of input into a directory, whole at once."""
    lines = "".join(f"{key},{number}\n" for key in range(number % 5 + 1))
    hidden = directory / f".{number}"
    hidden.write_text(lines)
    hidden.rename(directory / f"{number}.csv")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]))
