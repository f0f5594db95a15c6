"""The plan of a sweep, of a listing that is a DataFrame: mark, then take what is not marked.

Queries of Spark's are judged one by one, each by a task, for nothing outside of one refers into it. Flink's files may be
referred to by any job below the root: so all metadata is read, and an anti-join leaves what nobody refers to. The judges are
the daemon's (``judging``), and so the plan is the one that ``holdfast checkpoint sweep`` makes. What is written out between
the steps lies on the executors' disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoints.layouts import FlinkKind
from holdfast.checkpoints.reachability.flink_tree import JUDGED, METADATA
from holdfast.checkpoints.reachability.roots import Part
from holdfast_spark.forms import LISTED
from holdfast_spark.jobs.judging import PLANNED, REFERENCES, UNREFERRED, Judge
from holdfast_spark.jobs.locating import located, named, with_parents

_LISTED = list(LISTED.columns)


class Swept(NamedTuple):
    """What would go, and what could not be judged.

    ``entries`` are ``judging.PLANNED``, in no order; ``by_reason`` has their number and bytes, ``kept`` names and why.
    """

    entries: DataFrame
    by_reason: dict[str, tuple[int, int]]
    kept: list[tuple[str, str]]


@contextmanager
def swept(listed: DataFrame, judge: Judge) -> Iterator[Swept]:
    """Plan the sweep of a listing (``forms.LISTED``). The plan can be read within the block."""
    held: list[DataFrame] = []

    def hold(frame: DataFrame) -> DataFrame:
        held.append(frame.persist(StorageLevel.DISK_ONLY))
        return held[-1]

    try:
        objects = hold(located(hold(named(listed))))
        outside = objects.where("location is null")
        references = hold(_references(outside, judge))
        unreadable = [(row.name, row.kept_because) for row in references.where("kept_because is not null").collect()]
        judged = _queries(objects, judge).unionByName(_sinks(outside, judge))
        if not unreadable:
            judged = judged.unionByName(_files(outside, references, judge))
        judged = hold(judged.unionByName(_staged(outside, judge)))
        files = judged.where("kept_because is null")
        kept = [(row.name, row.kept_because) for row in judged.where("kept_because is not null").collect()]
        entries = hold(files.unionByName(_directories(objects, outside, files, hold, judge)))
        sums = entries.groupBy("reason").agg(f.count("*").alias("entries"), f.sum("size_bytes").alias("bytes"))
        by_reason = {row.reason: (row.entries, row.bytes) for row in sums.collect()}
        yield Swept(entries, by_reason, unreadable + kept)
    finally:
        for frame in held:
            frame.unpersist()


def _references(outside: DataFrame, judge: Judge) -> DataFrame:
    """Read all metadata: ``REFERENCES``."""
    metadata = outside.where(f.col("kind").isin([kind.value for kind in METADATA]) & ~f.col("is_directory"))
    tasks = outside.sparkSession.sparkContext.defaultParallelism
    return metadata.select(*_LISTED).repartition(tasks).mapInArrow(judge.references, REFERENCES.ddl)


def _queries(objects: DataFrame, judge: Judge) -> DataFrame:
    """Judge the queries of Spark's: ``PLANNED``."""
    files = objects.where("location is not null and not is_directory")
    by_location = files.select("location", *_LISTED).groupBy("location")
    return by_location.applyInArrow(lambda key, table: judge.query(key, table), PLANNED.ddl)


def _sinks(outside: DataFrame, judge: Judge) -> DataFrame:
    """Judge the logs of file sinks: ``PLANNED``."""
    files = outside.where(f.col("part") == Part.SINK_LOG.value)
    by_directory = files.select("directory", *_LISTED).groupBy("directory")
    return by_directory.applyInArrow(lambda table: judge.sink(table), PLANNED.ddl)


def _files(outside: DataFrame, references: DataFrame, judge: Judge) -> DataFrame:
    """Judge those of Flink's files that nobody refers to: ``PLANNED``."""
    unfinished = FlinkKind.UNFINISHED_METADATA
    files = outside.where(f.col("kind").isin([kind.value for kind in (*JUDGED, unfinished)]))
    components = references.where("not is_directory").select("component")
    unnamed = files.withColumn("component", f.substring_index("name", "/", -1)).join(components, "component", "left_anti")
    directories = references.where("is_directory").select("component")
    above = files.select("directory").distinct().withColumn("component", f.explode(f.split("directory", "/")))
    reached = above.join(directories, "component", "left_semi").select("directory")
    segments = files.where(f.col("kind") == FlinkKind.SHARED_SEGMENTS.value)
    silent = segments.groupBy("directory").agg(f.max("mtime_ns").alias("silent_since_ns"))
    unreferred = unnamed.join(reached, "directory", "left_anti").join(silent, "directory", "left")
    return _outside(unreferred.join(_completed(outside), "job", "left"), judge)


def _staged(outside: DataFrame, judge: Judge) -> DataFrame:
    """Judge objects that were on their way to their names: ``PLANNED``."""
    staged = outside.where(f.col("part") == Part.STAGED.value)
    none = f.lit(None)
    return _outside(
        staged.select(*_LISTED, *(none.alias(name) for name in UNREFERRED.columns if name not in _LISTED)), judge
    )


def _directories(
    objects: DataFrame, outside: DataFrame, files: DataFrame, hold: Callable[[DataFrame], DataFrame], judge: Judge
) -> DataFrame:
    """Plan to remove those of Flink's directories that are over and in which nothing stays: ``PLANNED``."""
    directories = outside.where((f.col("part") == Part.FLINK.value) & f.col("is_directory"))
    over = directories.join(_completed(outside), "job", "left").withColumn("silent_since_ns", f.lit(None))
    superfluous = hold(_outside(over, judge))
    if superfluous.isEmpty():
        return superfluous
    going = files.select("name").unionByName(superfluous.select("name"))
    stay = objects.join(going, "name", "left_anti").select("directory").distinct()
    occupied = stay.select(f.explode(with_parents(f.col("directory"))).alias("name"))
    return superfluous.join(occupied, "name", "left_anti")


def _completed(outside: DataFrame) -> DataFrame:
    """Return the complete checkpoints of each job: ``numbers`` and ``times``."""
    complete = outside.where((f.col("kind") == FlinkKind.METADATA.value) & ~f.col("is_directory"))
    pairs = complete.groupBy("job").agg(f.collect_list(f.struct("checkpoint", "mtime_ns")).alias("pairs"))
    return pairs.select("job", f.col("pairs.checkpoint").alias("numbers"), f.col("pairs.mtime_ns").alias("times"))


def _outside(files: DataFrame, judge: Judge) -> DataFrame:
    typed = [f.col(name).cast(kind) for name, kind in UNREFERRED.columns.items()]
    return files.select(*typed).mapInArrow(judge.outside, PLANNED.ddl)
