"""The plan of a sweep, of a listing that is a DataFrame: mark, then take what is not marked.

Queries of Spark's are judged one by one, each by a task, for nothing outside of one refers into it. Flink's files may be
referred to by any job below the root: so all metadata is read, and an anti-join leaves what nobody refers to. The judges are
the daemon's (``judging``), and so the plan is the one that ``holdfast checkpoint sweep`` makes. What is written out between
the steps lies on the executors' disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoints.layouts import FlinkKind
from holdfast.checkpoints.reachability import Reason
from holdfast.checkpoints.reachability.flink_tree import JUDGED, METADATA
from holdfast.checkpoints.reachability.roots import Part
from holdfast_spark.forms import LISTED
from holdfast_spark.jobs.holding import holding
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
    with holding() as hold:
        objects = hold(located(hold(named(listed))))
        outside = objects.where("location is null")
        references = hold(_references(outside, judge))
        unreadable = _kept(references)
        alone = [_directories(outside), _staged(outside), *([] if unreadable else [_unreferred(outside, references)])]
        judged = hold(_places(objects, judge).unionByName(_alone(alone, judge)))
        by_reason = _by_reason(judged)
        kept = _kept(judged) if by_reason.pop(None, None) else []
        entries = judged.where("kept_because is null")
        if Reason.EMPTY_DIRECTORY.name in by_reason:
            entries = hold(_without_occupied(entries, objects))
            by_reason = _by_reason(entries)
        yield Swept(entries, {reason or "": sums for reason, sums in by_reason.items()}, unreadable + kept)


def _references(outside: DataFrame, judge: Judge) -> DataFrame:
    """Read all metadata: ``REFERENCES``."""
    metadata = outside.where(f.col("kind").isin([kind.value for kind in METADATA]) & ~f.col("is_directory"))
    tasks = outside.sparkSession.sparkContext.defaultParallelism
    return metadata.select(*_LISTED).repartition(tasks).mapInArrow(judge.references, REFERENCES.ddl)


def _places(objects: DataFrame, judge: Judge) -> DataFrame:
    """Judge the queries of Spark's, and the logs of its file sinks, each as a whole: ``PLANNED``."""
    place = f.when(f.col("location").isNotNull(), f.col("location"))
    place = place.when(f.col("part") == Part.SINK_LOG.value, f.col("directory"))
    files = objects.where("not is_directory").withColumn("place", place).where("place is not null")
    by_place = files.select("place", f.expr("location is not null").alias("is_query"), *_LISTED).groupBy("place", "is_query")
    return by_place.applyInArrow(lambda key, rows: judge.place(key, rows), PLANNED.ddl)


def _unreferred(outside: DataFrame, references: DataFrame) -> DataFrame:
    """Return those of Flink's files that nobody refers to, with what else it takes to judge them."""
    kinds = [kind.value for kind in (*JUDGED, FlinkKind.UNFINISHED_METADATA)]
    files = outside.where(f.col("kind").isin(kinds))
    components = references.where("not is_directory").select("component")
    unnamed = files.withColumn("component", f.substring_index("name", "/", -1)).join(components, "component", "left_anti")
    directories = references.where("is_directory").select("component")
    above = files.select("directory").distinct().withColumn("component", f.explode(f.split("directory", "/")))
    reached = above.join(directories, "component", "left_semi").select("directory")
    segments = files.where(f.col("kind") == FlinkKind.SHARED_SEGMENTS.value)
    silent = segments.groupBy("directory").agg(f.max("mtime_ns").alias("silent_since_ns"))
    unreferred = unnamed.join(reached, "directory", "left_anti").join(silent, "directory", "left")
    return unreferred.join(_completed(outside), "job", "left")


def _staged(outside: DataFrame) -> DataFrame:
    """Return the objects that are on their way to their names, or were."""
    nothing = [f.lit(None).alias(name) for name in UNREFERRED.columns if name not in _LISTED]
    return outside.where(f.col("part") == Part.STAGED.value).select(*_LISTED, *nothing)


def _directories(outside: DataFrame) -> DataFrame:
    """Return Flink's directories."""
    directories = outside.where((f.col("part") == Part.FLINK.value) & f.col("is_directory"))
    return directories.join(_completed(outside), "job", "left").withColumn("silent_since_ns", f.lit(None))


def _alone(parts: Sequence[DataFrame], judge: Judge) -> DataFrame:
    """Judge what is judged by itself: ``PLANNED``."""
    typed = [f.col(name).cast(kind) for name, kind in UNREFERRED.columns.items()]
    return reduce(DataFrame.unionByName, (part.select(*typed) for part in parts)).mapInArrow(judge.alone, PLANNED.ddl)


def _without_occupied(entries: DataFrame, objects: DataFrame) -> DataFrame:
    """Leave out the directories in which anything stays."""
    stay = objects.join(entries.select("name"), "name", "left_anti").select("directory").distinct()
    occupied = stay.select(f.explode(with_parents(f.col("directory"))).alias("name"))
    return entries.join(occupied, "name", "left_anti")


def _completed(outside: DataFrame) -> DataFrame:
    """Return the complete checkpoints of each job: ``numbers`` and ``times``."""
    complete = outside.where((f.col("kind") == FlinkKind.METADATA.value) & ~f.col("is_directory"))
    pairs = complete.groupBy("job").agg(f.collect_list(f.struct("checkpoint", "mtime_ns")).alias("pairs"))
    return pairs.select("job", f.col("pairs.checkpoint").alias("numbers"), f.col("pairs.mtime_ns").alias("times"))


def _kept(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the names of what could not be judged, and why: as few as there are damaged manifests."""
    return [(row.name, row.kept_because) for row in frame.where("kept_because is not null").collect()]


def _by_reason(planned: DataFrame) -> dict[str | None, tuple[int, int]]:
    """Return number and bytes of the entries of each reason; None stands for what could not be judged."""
    sums = planned.groupBy("reason").agg(f.count("*").alias("entries"), f.sum("size_bytes").alias("bytes"))
    return {row.reason: (row.entries, row.bytes) for row in sums.collect()}
