"""A plan of Spark's in the form that ``holdfast checkpoint execute`` takes, written without holding it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from holdfast.checkpoints.reachability import Phase, Policy, Reason
from holdfast.checkpoints.sweeps.plan_format import SWEEP, Header, Item, StoredKept, StoredPolicy, lines
from holdfast.checkpoints.sweeps.plan_store import new_id
from holdfast.errors import ConfigurationError
from holdfast.system.whole_file import write_whole
from holdfast_spark.jobs.inventory_files import About
from holdfast_spark.jobs.sweep_plan import Swept


def header_of(plan: Swept, about: About, root: str, zone: str, policy: Policy) -> Header:
    """Return the header of a plan."""
    return Header(
        id=new_id(),
        kind=SWEEP,
        zone=zone,
        root=root,
        store=about.store,
        made_ns=about.began_ns,
        policy=StoredPolicy.of(policy),
        kept=[StoredKept(name, why) for name, why in sorted(plan.kept)],
        count=sum(count for count, _ in plan.by_reason.values()),
        size_bytes=sum(size_bytes for _, size_bytes in plan.by_reason.values()),
    )


def items(entries: DataFrame) -> Iterator[Item]:
    """Yield the items of a plan, in the order of deletion; the driver holds one partition of them at a time."""
    depth = f.when(f.col("phase") == int(Phase.DIRECTORY), -f.size(f.split("name", "/"))).otherwise(0)
    for row in entries.orderBy("phase", depth, "name").toLocalIterator():
        phase, reason = Phase(row["phase"]), Reason[row["reason"]]
        yield Item.of(row["name"], reason, row["about"], row["size_bytes"], row["mtime_ns"], phase, etag=row["etag"])


def write(header: Header, entries: DataFrame, directory: Path) -> Path:
    """Write ``ID.plan`` into a directory of the driver's machine, whole or not at all. Raises ``ConfigurationError``."""
    file = directory / f"{header.id}.plan"
    try:
        write_whole(file, lines(header, items(entries)))
    except OSError as problem:
        raise ConfigurationError(f"the plan can't be written to {directory}: {os.strerror(problem.errno or 0)}") from None
    return file
