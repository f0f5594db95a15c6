"""Plan a sweep: what no retained checkpoint of Spark, Flink or Holdfast refers to, of an inventory.

The plan is the one that ``holdfast checkpoint sweep --dry-run`` makes of the same root, in the same form: nothing is deleted
here. A daemon executes it, after it has looked once more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.checkpoints.reachability import Policy
from holdfast.checkpoints.sweeps.plan_format import Header
from holdfast.system.text import printable
from holdfast_spark.jobs.formatting import counted, moment, size, table
from holdfast_spark.jobs.job_command import add_store_and_inventory, made, parser_of, run, seconds, store_and_inventory
from holdfast_spark.jobs.plan_file import header_of, write
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.jobs.sweep_judges import Judge
from holdfast_spark.jobs.sweep_plan import Swept, swept
from holdfast_spark.session import DEFAULT_STORE

_SECOND_NS = 10**9
_DEFAULT = Policy()
_SHOWN_KEPT = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("orphans", __doc__)
    add_store_and_inventory(parser)
    parser.add_argument("--root", default="", help="the directory to be swept; wide enough for all that refer to each other")
    parser.add_argument("--zone", default=DEFAULT_STORE, help="the name of the store in the mounts (default: %(default)s)")
    parser.add_argument("--plans", type=Path, default=Path(), help="where the plan is to be written (default: here)")
    parser.add_argument("--table", help="write the entries as Parquet too, to this directory")
    for name, default_ns, what in (
        ("grace", _DEFAULT.grace_ns, "touch nothing younger"),
        ("abandoned", _DEFAULT.abandoned_ns, "how long a checkpoint may be under way"),
    ):
        default = default_ns / _SECOND_NS
        parser.add_argument(
            f"--{name}", type=seconds, metavar="SECONDS", default=default, help=f"{what} (default: {default:.0f})"
        )
    parser.add_argument("--min-batches", type=int, default=_DEFAULT.min_batches_to_retain, help="Spark's minBatchesToRetain")
    return run("orphans", _job, parser, arguments)


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> None:
    policy = Policy(int(options.grace * _SECOND_NS), int(options.abandoned * _SECOND_NS), options.min_batches)
    root = options.root.strip("/")
    plans = made(options.plans)
    address, inventory = store_and_inventory(spark, options)
    judge = Judge(address, root, policy, inventory.about.began_ns)
    with ExitStack() as stack:
        with progress.step("judging"):
            plan = stack.enter_context(swept(inventory.listed(root), judge))
        with progress.step("writing the plan"):
            header = header_of(plan, inventory.about, root, options.zone, policy)
            file = write(header, plan.entries, plans)
            if options.table:
                plan.entries.drop("kept_because").write.parquet(options.table)
        _tell(header, plan, file)


def _tell(header: Header, plan: Swept, file: Path) -> None:
    where = f"{header.store}/{header.root}".rstrip("/")
    if header.count:
        rows = [
            (reason.lower().replace("_", " "), count, size(size_bytes))
            for reason, (count, size_bytes) in sorted(plan.by_reason.items())
        ]
        print(table(("why", "entries", "size"), rows))
    for kept in header.kept[:_SHOWN_KEPT]:
        print(printable(f"kept: {kept.scope or '.'}: {kept.why}"))
    if len(header.kept) > _SHOWN_KEPT:
        print(f"… and {len(header.kept) - _SHOWN_KEPT} more could not be judged; they stand in the plan")
    entries = counted(header.count, "entry", "entries")
    print(f"{where} as of {moment(header.made_ns)}: {entries}, {size(header.size_bytes)}: {file}")


if __name__ == "__main__":
    sys.exit(main())
