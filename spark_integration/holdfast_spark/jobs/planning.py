"""A plan of Spark's in the form that ``holdfast checkpoint execute`` takes, written without holding it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from holdfast.checkpoints.hooks.shelf import new_id
from holdfast.checkpoints.hooks.stored import Header, Item, StoredKept, StoredPolicy
from holdfast.checkpoints.reachability import Phase, Policy
from holdfast.errors import ConfigurationError
from holdfast_spark.jobs.inventories import About
from holdfast_spark.jobs.sweeping import Swept


def header_of(plan: Swept, about: About, root: str, zone: str, policy: Policy) -> Header:
    """Return the header of a plan."""
    return Header(
        id=new_id(),
        kind="sweep",
        zone=zone,
        root=root,
        store=about.store,
        made_ns=about.began_ns,
        policy=StoredPolicy.of(policy),
        kept=[StoredKept(name, why) for name, why in sorted(plan.kept)],
        count=sum(count for count, _ in plan.by_reason.values()),
        size_bytes=sum(size_bytes for _, size_bytes in plan.by_reason.values()),
    )


def lines(header: Header, entries: DataFrame) -> Iterator[bytes]:
    """Yield the lines of the stored form, in the order of deletion; the driver holds one partition of them at a time."""
    encoder = msgspec.json.Encoder()
    yield encoder.encode(header) + b"\n"
    depth = f.when(f.col("phase") == int(Phase.DIRECTORY), -f.size(f.split("name", "/"))).otherwise(0)
    for row in entries.orderBy("phase", depth, "name").toLocalIterator():
        yield encoder.encode(_item(row)) + b"\n"


def write(header: Header, entries: DataFrame, directory: Path) -> Path:
    """Write ``ID.plan`` into a directory of the driver's machine, whole or not at all. Raises ``ConfigurationError``."""
    file = directory / f"{header.id}.plan"
    new = directory / f".new-{file.name}"
    try:
        with new.open("wb") as stream:
            stream.writelines(lines(header, entries))
        new.replace(file)
    except OSError as problem:
        raise ConfigurationError(f"the plan can't be written to {directory}: {os.strerror(problem.errno or 0)}") from None
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)
    return file


def _item(row: Row | Any) -> Item:
    return Item(
        name=row["name"],
        reason=row["reason"].lower(),
        about=row["about"],
        size_bytes=row["size_bytes"],
        mtime_ns=row["mtime_ns"],
        etag=row["etag"],
        phase=Phase(row["phase"]).name.lower(),
    )
