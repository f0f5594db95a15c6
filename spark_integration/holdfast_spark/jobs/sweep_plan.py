"""The plan of a sweep, of a listing that is a DataFrame: mark, then take what is not marked.

Checkpoint locations and groups are judged one by one, each by a task, for nothing outside of one refers into it. Files of
trees may be referred to by any job below the root: so all manifests are read, and an anti-join leaves what nothing refers
to. The judges are the daemon's (``sweep_judges``), and so the plan is the one that ``holdfast checkpoint sweep`` makes. What
is written out between the steps lies on the executors' disks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoints.formats.interface import Role
from holdfast.checkpoints.reachability import Reason
from holdfast.checkpoints.reachability.division import Part
from holdfast_spark.arrow_forms import LISTED
from holdfast_spark.jobs.checkpoint_locations import located, named, with_parents
from holdfast_spark.jobs.computed_once import holding
from holdfast_spark.jobs.sweep_judges import MANIFESTS, PLANNED, REFERENCES, UNREFERRED, Judge

_LISTED = list(LISTED.columns)


class Swept(NamedTuple):
    """The plan of a sweep. ``entries`` are ``sweep_judges.PLANNED``, in no order.

    ``by_reason`` has their number and bytes, ``kept`` the names of what could not be judged, and why.
    """

    entries: DataFrame
    by_reason: dict[str, tuple[int, int]]
    kept: list[tuple[str, str]]


@contextmanager
def swept(listed: DataFrame, judge: Judge) -> Iterator[Swept]:
    """Plan the sweep of a listing (``arrow_forms.LISTED``). The plan can be read within the block."""
    with holding() as hold:
        objects = hold(located(hold(named(listed, judge.formats)), judge.formats))
        outside = objects.where("location is null")
        references = hold(_references(outside, judge))
        unreadable = _kept(references)
        alone = [_directories(outside), _staged(outside), _unreferred(outside, references)]
        judged = hold(_units(objects, judge).unionByName(_alone(alone, judge)))
        by_reason = _by_reason(judged)
        kept = _kept(judged) if by_reason.pop(None, None) else []
        entries = judged.where("kept_because is null")
        if Reason.EMPTY_DIRECTORY.name in by_reason:
            entries = hold(_without_occupied(entries, objects))
            by_reason = _by_reason(entries)
        yield Swept(entries, {reason or "": sums for reason, sums in by_reason.items()}, unreadable + kept)


def _references(outside: DataFrame, judge: Judge) -> DataFrame:
    """Read all manifests: ``REFERENCES``."""
    manifests = outside.where((f.col("role") == Role.MANIFEST.value) & ~f.col("is_directory"))
    tasks = outside.sparkSession.sparkContext.defaultParallelism
    return manifests.select(*MANIFESTS.columns).repartition(tasks).mapInArrow(judge.references, REFERENCES.ddl)


def _units(objects: DataFrame, judge: Judge) -> DataFrame:
    """Judge checkpoint locations and groups, each as a whole: ``PLANNED``."""
    is_location = f.col("location").isNotNull()
    of_group = f.when(f.col("part") == Part.GROUP.value, f.col("unit"))
    place = f.when(is_location, f.col("location")).otherwise(of_group)
    layout = f.when(is_location, f.col("location_layout")).otherwise(f.col("layout"))
    columns: list[Column | str] = [
        place.alias("place"),
        is_location.alias("is_location"),
        layout.alias("place_layout"),
        *_LISTED,
    ]
    files = objects.where("not is_directory").select(*columns).where("place is not null")
    by_place = files.groupBy("place", "is_location", "place_layout")
    return by_place.applyInArrow(lambda key, rows: judge.unit(key, rows), PLANNED.ddl)


def _unreferred(outside: DataFrame, references: DataFrame) -> DataFrame:
    """Return the candidates that nothing refers to, of trees whose manifests were all read, with columns to judge by."""
    stopped = references.where("kept_because is not null").select("layout").distinct()
    files = outside.where(f.col("role") == Role.CANDIDATE.value).join(f.broadcast(stopped), "layout", "left_anti")
    components = references.where("not is_directory").select("layout", "component")
    named_alone = files.withColumn("component", f.substring_index("name", "/", -1))
    unnamed = named_alone.join(components, ["layout", "component"], "left_anti")
    directories = references.where("is_directory").select("layout", "component")
    above = files.select("layout", "directory").distinct().withColumn("component", f.explode(f.split("directory", "/")))
    reached = above.join(directories, ["layout", "component"], "left_semi").select("layout", "directory")
    appended = files.where("is_appended")
    silent = appended.groupBy("layout", "directory").agg(f.max("mtime_ns").alias("silent_since_ns"))
    unreferred = unnamed.join(reached, ["layout", "directory"], "left_anti").join(silent, ["layout", "directory"], "left")
    return unreferred.join(_completed(outside), ["layout", "unit"], "left")


def _staged(outside: DataFrame) -> DataFrame:
    """Return the objects that are on their way to their names, or were."""
    nothing = [f.lit(None).alias(name) for name in UNREFERRED.columns if name not in _LISTED]
    return outside.where(f.col("part") == Part.STAGED.value).select(*_LISTED, *nothing)


def _directories(outside: DataFrame) -> DataFrame:
    """Return the directories of trees."""
    directories = outside.where((f.col("part") == Part.TREE.value) & f.col("is_directory"))
    completed = directories.join(_completed(outside), ["layout", "unit"], "left")
    return completed.withColumn("silent_since_ns", f.lit(None))


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
    complete = outside.where("completes is not null").groupBy("layout", "unit")
    pairs = complete.agg(f.collect_list(f.struct("completes", "mtime_ns")).alias("pairs"))
    numbers, times = f.col("pairs.completes").alias("numbers"), f.col("pairs.mtime_ns").alias("times")
    return pairs.select("layout", "unit", numbers, times)


def _kept(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the names of what could not be judged, and why: as few as there are damaged manifests."""
    return [(row.name, row.kept_because) for row in frame.where("kept_because is not null").collect()]


def _by_reason(planned: DataFrame) -> dict[str | None, tuple[int, int]]:
    """Return number and bytes of the entries of each reason; None stands for what could not be judged."""
    sums = planned.groupBy("reason").agg(f.count("*").alias("entries"), f.sum("size_bytes").alias("bytes"))
    return {row.reason: (row.entries, row.bytes) for row in sums.collect()}
