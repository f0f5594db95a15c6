"""A sweep in parts, for listings that no single machine holds: whoever splits one up judges each part by the same rules.

- ``evidence_of`` and ``part_of`` say of each name, on its own, what it takes to split the listing;
- ``sweep_query`` judges one checkpoint location of Spark's, ``plan_directory_of_a_sink`` one ``_spark_metadata``;
- ``references_of`` reads what Flink's metadata refers to, ``plan_outside`` judges one file that nobody refers to.

What remains for the caller is what takes the whole listing: which names are referred to, which directories stay occupied.
``sweep`` does all of it in one place; both must give the same plan (``tests/spark/test_jobs_orphans.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.checkpoints.layouts import FlinkKind, FlinkName, SparkName
from holdfast.checkpoints.reachability.asking import Asking, Examination
from holdfast.checkpoints.reachability.flink_tree import (
    JUDGED,
    Job,
    about,
    is_superfluous,
    job_of,
    plan_unfinished,
    plan_unreached,
)
from holdfast.checkpoints.reachability.plan import Listed, Phase, Plan, PlanBuilder, Policy, Reason
from holdfast.checkpoints.reachability.roots import Part, part_of, query_of
from holdfast.checkpoints.reachability.spark_query import Query, plan_query
from holdfast.checkpoints.reachability.sweep import plan_sink_logs, plan_staged


def sweep_query(location: bytes, listing: Iterable[Listed], policy: Policy, now_ns: int) -> Examination[Plan]:
    """Begin to plan the sweep of one location of Spark's, of what belongs to it and to no location within it."""
    return Examination(_sweep_query(query_of(location, listing), PlanBuilder(policy, now_ns)))


def plan_directory_of_a_sink(listing: Iterable[Listed], builder: PlanBuilder) -> None:
    """Plan what may go beside the log of a file sink; ``listing`` is one directory's."""
    named = ((listed, part_of(listed)[1]) for listed in listing)
    plan_sink_logs([(listed, name) for listed, name in named if isinstance(name, SparkName)], builder)


def plan_outside(listed: Listed, completed: Mapping[int, int], silent_since_ns: int, builder: PlanBuilder) -> None:
    """Plan what becomes of one thing that lies in no location of Spark's, and that no metadata refers to.

    ``completed`` are the times of the job's complete checkpoints by number, ``silent_since_ns`` is when a file beside it was
    last written. A directory is planned as if it were empty.
    """
    part, name = part_of(listed)
    if part is Part.STAGED:
        plan_staged(listed, builder)
    elif isinstance(name, FlinkName):
        known = Job()
        known.completed.update(completed)
        job = job_of(name, known if completed else None)
        if listed.is_directory:
            if is_superfluous(listed, name, job, builder):
                builder.add(listed, Reason.EMPTY_DIRECTORY, about(name), Phase.DIRECTORY)
        elif name.kind is FlinkKind.UNFINISHED_METADATA:
            plan_unfinished(listed, name, builder)
        elif name.kind in JUDGED:
            plan_unreached(listed, name, job, silent_since_ns, builder)


def _sweep_query(query: Query, builder: PlanBuilder) -> Asking[Plan]:
    yield from plan_query(query, builder)
    return builder.plan()
