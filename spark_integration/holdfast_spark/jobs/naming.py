"""What each name of a listing says: by itself, in the first pass of every job; and below the location that it lies in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.layouts import FlinkName, SparkName, parse_spark
from holdfast.checkpoints.reachability import Listed
from holdfast.checkpoints.reachability.roots import Part, evidence_of, part_of
from holdfast_spark.forms import LISTED

NAMED = LISTED.with_columns(
    directory="string",
    claims="string",
    claims_metadata="boolean",
    part="string",
    kind="string",
    job="string",
    checkpoint="bigint",
)
"""``claims``: the directory that this name shows to be a checkpoint location of Spark's, if another one does so too
(one by ``metadata``, one by a log). The rest holds for names that lie in no such location."""


def name_all(batches: Iterator[Any]) -> Iterator[Any]:
    """Read names (``LISTED`` in, ``NAMED`` out)."""
    for batch in batches:
        yield from NAMED.batches(_named(row) for row in LISTED.rows(batch))


def listed_of(row: tuple[Any, ...]) -> Listed:
    """Return a row of ``LISTED`` as the judges know it."""
    name, size_bytes, mtime_ns, _, is_directory = row
    return Listed(name.encode(), size_bytes, mtime_ns, is_directory)


def name_below(location: str, name: str) -> SparkName | None:
    """Return what ``name`` says, which lies below the checkpoint location ``location`` (``""``: the root)."""
    parsed = parse_spark(name[len(location) + 1 if location else 0 :].encode())
    return parsed if isinstance(parsed, SparkName) else None


def _named(row: tuple[Any, ...]) -> tuple[Any, ...]:
    listed = listed_of(row)
    directory = row[0].rpartition("/")[0]
    evidence = evidence_of(listed)
    claims = (evidence.location.decode(), evidence.is_metadata) if evidence else (None, None)
    part, name = part_of(listed)
    if part is Part.FLINK and isinstance(name, FlinkName):
        return *row, directory, *claims, part.value, name.kind.value, name.job.decode(), name.checkpoint
    return *row, directory, *claims, part.value, None, None, None
