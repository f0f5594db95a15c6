"""Whose an object is, and what it is for, in words for people: what executors tell for a report on usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.layouts import FlinkKind, FlinkName, SparkKind, SparkName, parse_flink
from holdfast_spark.forms import PLACED, Form
from holdfast_spark.jobs.naming import name_below
from holdfast_spark.stores import PRIVATE, is_private

OWNED = Form(owner="string", purpose="string", size_bytes="bigint")

_OF_SPARK = {
    SparkKind.SST: "state",
    SparkKind.ARCHIVED_LOG: "state",
    SparkKind.ZIP: "state",
    SparkKind.CHANGELOG: "state",
    SparkKind.SNAPSHOT: "state",
    SparkKind.DELTA: "state",
}
_OF_FLINK = {
    FlinkKind.SHARED: "shared",
    FlinkKind.SHARED_SEGMENTS: "shared",
    FlinkKind.EXCLUSIVE: "exclusive",
    FlinkKind.TASK_OWNED: "task-owned",
    FlinkKind.SAVEPOINT: "savepoints",
    FlinkKind.SAVEPOINT_METADATA: "savepoints",
    FlinkKind.METADATA: "metadata",
    FlinkKind.OTHER_METADATA: "metadata",
}
TEMPORARY = "temporary and checksums"
LOGS = "logs and schemas"
OTHER = "other"
PURPOSES = (*dict.fromkeys([*_OF_SPARK.values(), *_OF_FLINK.values()]), LOGS, TEMPORARY, OTHER)
"""All words for what an object is for, in the order in which they are shown."""


def own(batches: Iterator[Any]) -> Iterator[Any]:
    """Tell owners and purposes (``PLACED`` in, ``OWNED`` out)."""
    for batch in batches:
        yield from OWNED.batches((*owner_of(*row[:2]), row[2]) for row in PLACED.rows(batch))


def owner_of(location: str | None, name: str) -> tuple[str, str]:
    """Return whose ``name`` is and what it is for: a query's (by its location), a job's, else its first directory's."""
    if location is not None:
        spark = name_below(location, name)
        return location or ".", _of_spark(spark) if spark else OTHER
    if is_private(name):
        return PRIVATE, TEMPORARY
    flink = parse_flink(name.encode())
    if isinstance(flink, FlinkName) and flink.kind is not FlinkKind.OTHER_METADATA:
        job = flink.job.decode() or flink.directory.decode().partition("/")[0]
        return job, _OF_FLINK.get(flink.kind, TEMPORARY)
    first, slash, _ = name.partition("/")
    return (first if slash else "."), OTHER


def _of_spark(name: SparkName) -> str:
    if name.layers:
        return TEMPORARY
    return _OF_SPARK.get(name.kind, LOGS)
