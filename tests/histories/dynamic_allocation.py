"""``./run python -m tests.histories.dynamic_allocation``: a query whose application starts with one executor, or with three.

Prints a row for each start of a new driver: where the partitions of its first batch ran, which nodes held the newest state
after its last one, and what was fetched. Takes three minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast.config.units import ByteSize
from tests.cluster.cluster import Cluster
from tests.cluster.placed import Start, fetched, held_by, start
from tests.cluster.settings import Settings

_STARTS = (1, 3, 3, 1)
"""Executors at the start; as tasks wait, Spark asks for more, up to three."""
_SETTINGS = {
    "enabled": "true",
    "shuffleTracking.enabled": "true",
    "minExecutors": "1",
    "maxExecutors": "3",
    "schedulerBacklogTimeout": "1s",
    "executorIdleTimeout": "600s",
}
_CONFS = [f"spark.dynamicAllocation.{key}={value}" for key, value in _SETTINGS.items()]
_SIZES = ("--rows", "600", "--row-bytes", "10000", "--batches", "12")
_NAME = "flights"
_HEAD = "| executors at the start | first batch | last batch | fetched by each node | state |"


def main() -> None:
    """Start the driver again and again."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.dynamic_allocation", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    with Cluster.running(parser.parse_args().directory, Settings()) as cluster:
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        for executors in _STARTS:
            before = fetched(cluster)
            confs = [*_CONFS, f"spark.dynamicAllocation.initialExecutors={executors}"]
            came_to = start(cluster, _NAME, *_SIZES, executors=executors, confs=confs)
            print(_row(cluster, executors, before, came_to), flush=True)


def _row(cluster: Cluster, executors: int, before: dict[str, int], came_to: Start) -> str:
    held = [held_by(node, _NAME, came_to.batch + 1) for node in cluster.nodes]
    moved = [str(ByteSize(size - before[node])) for node, size in fetched(cluster).items()]
    state = ByteSize(sum(sum(partitions.values()) for partitions in held))
    cells = [executors, came_to.balances(), [len(partitions) for partitions in held], ", ".join(moved), state]
    return f"| {' | '.join(str(cell) for cell in cells)} |"


if __name__ == "__main__":
    main()
