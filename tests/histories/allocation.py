"""``./run python -m tests.histories.allocation``: placement under dynamic allocation, from one executor to three.

A query begins with one executor; Spark asks for more while it is behind. It runs until each of the three nodes has its share
of the partitions; then a new driver starts with three executors. Prints where the partitions were, and what was fetched.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from holdfast.config.units import ByteSize
from tests.cluster.cluster import Cluster
from tests.cluster.placed import fetched, start
from tests.cluster.settings import Settings

_NODES, _PARTITIONS = 3, 12
_ROWS = ("--rows", "600", "--row-bytes", "10000")
_TOLD_AT_ONCE = (("holdings.interval_seconds", "0.2"), ("holdings.refresh_seconds", "0.2"))


def main() -> None:
    """Run both drivers."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.allocation", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--batches", type=int, default=1, help="at least, of the first driver")
    options = parser.parse_args()
    settings = Settings(nodes=_NODES, partitions=_PARTITIONS, options=_TOLD_AT_ONCE)
    growing = ("--batches", str(options.batches), "--even-over", str(_NODES))
    print("| executors at first | first batch | last batch | batches | fetched |\n|--:|---|---|--:|---|")
    with Cluster.running(options.directory, settings) as cluster:
        done = -1
        for executors, arguments in ((1, growing), (_NODES, ())):
            before = fetched(cluster)
            made = start(cluster, "allocated", *_ROWS, *arguments, executors=executors, confs=_allocated(executors))
            by_node = (f"{name} {ByteSize(total - before[name])}" for name, total in sorted(fetched(cluster).items()))
            cells = (_counts(made.hosts[0]), _counts(made.last_hosts), str(made.batch - done), ", ".join(by_node))
            print(f"| {executors} | {' | '.join(cells)} |", flush=True)
            done = made.batch


def _counts(hosts: dict[str, str]) -> str:
    return ", ".join(f"{count} on {host}" for host, count in sorted(Counter(hosts.values()).items()))


def _allocated(at_first: int) -> list[str]:
    """Return the settings of dynamic allocation, with so many executors at first."""
    settings = {
        "enabled": "true",
        "shuffleTracking.enabled": "true",
        "initialExecutors": str(at_first),
        "minExecutors": "1",
        "maxExecutors": str(_NODES),
    }
    return [f"spark.dynamicAllocation.{key}={value}" for key, value in settings.items()]


if __name__ == "__main__":
    main()
