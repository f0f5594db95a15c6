"""Batches of a Spark query that are dropped before Spark purges them: all up to one, never the newest two.

A query's logs must have no gaps (SPARK-38033), so a batch goes with all before it; and Spark reads the offsets of the two
newest batches when it starts (S ``MicroBatchExecution.populateStartOffsets``). Commits go first, then offsets and those
versions of the state that no remaining batch needs; SSTs and logs that only they have named are left for a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats.interface import Batch
from holdfast.checkpoints.formats.spark.query import Query, chains_from
from holdfast.checkpoints.formats.spark.state_store import plan_attempts, plan_plain_versions
from holdfast.checkpoints.formats.spark.wrapping import Layer
from holdfast.checkpoints.plans import Listed, Phase, PlanBuilder, Reason
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.system.text import shown

_NEEDED_TO_START = 2
_BATCH = re.compile(rb"(?:(?P<location>.*)/)?(?:commits|offsets)/(?P<number>0|[1-9][0-9]{0,18})", re.DOTALL)


def batch_of(name: bytes) -> Batch | None:
    """Return location and number of the batch that is named by its commit or offsets; None for other names."""
    match = _BATCH.fullmatch(name)
    return None if match is None else Batch(match["location"] or b"", int(match["number"]))


def batches_to_drop(listing: Iterable[Listed], number: int, *, all_before: bool) -> tuple[bytes, ...]:
    """Return the name of the batch that is dropped with all before it, in a location that is the root of ``listing``.

    Raises ``PlanError`` when there is no such batch, or there are others before it that are to stay.
    """
    batches = [batch for each in listing if (batch := batch_of(each.name)) is not None and not batch.location]
    numbers = [batch.number for batch in batches]
    if number not in numbers:
        raise NoSuchPlanError(f"there is no batch {number}: neither commits/{number} nor offsets/{number}")
    if not all_before and min(numbers) < number:
        raise PlanError(f"batch {number} goes only with all before it, for a query's log must have no gaps: use --up-to")
    return (b"commits/%d" % number,)


def plan_batches(query: Query, last: int, builder: PlanBuilder) -> Asking[None]:
    """Plan to drop all batches up to ``last``. Raises ``PlanError`` when Spark needs one of them to start.

    ``builder`` has no grace age: it was asked for.
    """
    remaining = {number: listed for number, listed in query.commits.items() if number > last}
    newest = max(query.offsets, default=0)
    if not remaining or last > newest - _NEEDED_TO_START:
        most = min(max(query.commits, default=0) - 1, newest - _NEEDED_TO_START)
        raise PlanError(
            f"batch {last} can't be dropped: Spark needs the newest two to start"
            + (f"; batches up to {most} can" if most >= min(query.commits, default=most + 1) else "")
            + ". To drop a whole query, remove its directory"
        )
    for number, listed in query.commits.items():
        if number <= last:
            builder.add(listed, Reason.DROPPED, f"batch {number}", Phase.MANIFEST)
    for number, listed in query.offsets.items():
        if number <= last:
            builder.add(listed, Reason.DROPPED, f"batch {number}")
    oldest = min(remaining)
    chains = yield from chains_from(replace(query, commits=remaining), oldest, builder)
    for store_id, store in query.stores.items():
        plan_plain_versions(store, oldest, builder)
        plan_attempts(store, oldest, chains.get(store_id), builder)
    _plan_checksums(query, builder)


def _plan_checksums(query: Query, builder: PlanBuilder) -> None:
    """Plan to remove the checksums of what goes."""
    for listed, name in sorted(query.wrapped, key=lambda each: len(each[1].layers)):
        owner = _beside(listed, name.owner)
        if name.layers[0] is not Layer.TEMPORARY and builder.reason_of(owner) is not None:
            builder.add(listed, Reason.DROPPED, f"of {shown(owner)}", Phase.CHECKSUM)


def _beside(listed: Listed, owner: bytes) -> bytes:
    directory = listed.name.rpartition(b"/")[0]
    last = owner.rpartition(b"/")[2]
    return b"%s/%s" % (directory, last) if directory else last
