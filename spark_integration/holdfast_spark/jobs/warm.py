r"""Say which node should hold what: the state that streaming queries go on from, spread over nodes, as lists for a prefetch.

A partition's state belongs to one node (or to several, --copies), by a rendezvous of both their names: it is the same in
every run, and when a node comes or goes, only that node's share moves. On each node then:

  xargs -d '\n' holdfast prefetch < NODE.paths
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from holdfast.errors import ConfigurationError
from holdfast_spark.arrow_forms import PLACED
from holdfast_spark.jobs.checkpoint_locations import located, named
from holdfast_spark.jobs.computed_once import Hold, holding
from holdfast_spark.jobs.formatting import counted, size, table
from holdfast_spark.jobs.job_command import add_store_and_inventory, made, parser_of, positive, run, store_and_inventory
from holdfast_spark.jobs.progress import Progress
from holdfast_spark.jobs.restart_files import STATE, UNIT, Chooser

_PARTITION = ["location", "operator", "partition"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = parser_of("warm", __doc__)
    add_store_and_inventory(parser)
    parser.add_argument(
        "--nodes", required=True, metavar="NAME,NAME|@FILE", help="the nodes, or a file with one on each line"
    )
    parser.add_argument("--output", type=Path, default=Path(), metavar="DIRECTORY", help="for the lists (default: here)")
    parser.add_argument("--root", default="", help="only queries below this directory of the store")
    parser.add_argument("--mounted", default="/mnt/holdfast/checkpoints", help="where the nodes see the store")
    parser.add_argument("--copies", type=positive, default=1, help="how many nodes hold each partition (default: 1)")
    return run("warm", _job, parser, arguments)


def needed(listed: DataFrame, chooser: Chooser, hold: Hold) -> DataFrame:
    """Return the files (``restart_files.UNIT``) that the queries in a listing (``arrow_forms.LISTED``) need to go on."""
    files = located(hold(named(listed))).where("location is not null and not is_directory")
    state = hold(files.select(*PLACED.columns).mapInArrow(chooser.state_of, STATE.ddl))
    finished = state.where("operator is null").groupBy("location").agg(f.max("finished").alias("version"))
    stores = state.where("operator is not null").join(finished, "location").select(*STATE.columns, "version")
    return stores.groupBy(*_PARTITION).applyInArrow(lambda rows: chooser.choose(rows), UNIT.ddl)


def placed(units: DataFrame, nodes: Sequence[str], copies: int) -> DataFrame:
    """Return the files with the nodes that should hold them (``node``): each partition on ``copies`` nodes."""
    partitions = units.select(*_PARTITION).distinct()
    ranks = Window.partitionBy(*_PARTITION).orderBy(f.desc("score"), "node")
    each_node = partitions.withColumn("node", f.explode(f.array(*map(f.lit, nodes))))
    scored = each_node.withColumn("score", f.xxhash64("node", *_PARTITION)).withColumn("rank", f.row_number().over(ranks))
    return units.join(scored.where(f.col("rank") <= copies).drop("score", "rank"), _PARTITION)


def _job(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> None:
    nodes = _nodes(options.nodes)
    if options.copies > len(nodes):
        raise ConfigurationError(f"{counted(options.copies, 'copy', 'copies')} take more than {counted(len(nodes), 'node')}")
    output = made(options.output)
    address, inventory = store_and_inventory(spark, options)
    root = options.root.strip("/")
    below = "/".join(filter(None, (options.mounted.rstrip("/"), root)))
    with holding() as hold:
        with progress.step("reading names and snapshots"):
            files = hold(needed(inventory.listed(root), Chooser(address, root), hold))
            files = hold(placed(files, nodes, options.copies))
            totals = _totals(files, nodes)
        with progress.step("writing the lists"):
            _write(files, nodes, below, output)
    print(table(("node", "partitions", "files", "size"), totals))
    print(f"lists for 'holdfast prefetch': {output / '*.paths'}")


def _totals(files: DataFrame, nodes: Sequence[str]) -> list[tuple[str, int, int, str]]:
    by_node = files.groupBy("node").agg(
        f.count_distinct(*_PARTITION).alias("partitions"), f.count("*").alias("files"), f.sum("size_bytes").alias("bytes")
    )
    found = {row.node: (row.partitions, row.files, size(row.bytes)) for row in by_node.collect()}
    return [(node, *found.get(node, (0, 0, size(0)))) for node in nodes]


def _write(files: DataFrame, nodes: Sequence[str], below: str, directory: Path) -> None:
    """Write one list for each node, the largest files first: they take longest."""
    rows = files.orderBy("node", f.desc("size_bytes"), "name").select("node", "name").toLocalIterator()
    try:
        for node in nodes:
            (directory / f"{node}.paths").write_bytes(b"")
        for node, of_node in groupby(rows, lambda row: str(row["node"])):
            with (directory / f"{node}.paths").open("w", encoding="utf-8") as stream:
                stream.writelines(f"{below}/{row['name']}\n" for row in of_node)
    except OSError as problem:
        raise ConfigurationError(f"{directory}: the lists can't be written: {os.strerror(problem.errno or 0)}") from None


def _nodes(text: str) -> list[str]:
    """Return the names of the nodes. Raises ``ConfigurationError``."""
    if text.startswith("@"):
        try:
            names = Path(text[1:]).read_text().split()
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigurationError(f"the list of nodes {text[1:]} can't be read: {problem}") from None
    else:
        names = [name for name in text.split(",") if name]
    if not names or len(set(names)) < len(names) or any("/" in name or name.startswith(".") for name in names):
        raise ConfigurationError(f"--nodes {text}: one or more names, each once, without slashes")
    return names


if __name__ == "__main__":
    sys.exit(main())
