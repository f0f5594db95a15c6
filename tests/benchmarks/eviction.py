"""``python -m tests.benchmarks.eviction``: eviction policies on traces of real runs, against LRU and the optimum.

``record DIRECTORY [TRACE…]`` runs the demo's job on a mount with a daemon that records; its driver is killed and started
again every few batches. The traces: ``changelogs`` alone (a query younger than Spark's first snapshots), ``snapshots``, and
``backups`` (``tar``) of the whole checkpoint after every second start. ``replay FILE…`` prints how many reads miss with
caches of several sizes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.eviction_replay import POLICIES, Event, largest_footprint, replayed
from tests.support.daemons.faults.cache_trace import TRACE
from tests.support.daemons.node import Node
from tests.support.spark.flights_job import Job

_BATCHES_OF_A_START = 6
_SETTINGS = {"spark.sql.shuffle.partitions": "4", "spark.sql.streaming.minBatchesToRetain": "20"}
_SNAPSHOTS = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
}
"""What Spark does in minutes, in seconds."""
_TRACES: dict[str, dict[str, str]] = {"changelogs": {}, "snapshots": _SNAPSHOTS, "backups": _SNAPSHOTS}
_SHARES = (0.05, 0.1, 0.2, 0.4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or replay."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.benchmarks.eviction", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("directory", type=Path)
    record.add_argument("traces", nargs="*", default=list(_TRACES), metavar="TRACE", help=", ".join(_TRACES))
    record.add_argument("--batches", type=int, default=60)
    commands.add_parser("replay").add_argument("traces", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "record":
        options.directory.mkdir(parents=True, exist_ok=True)
        for trace in options.traces:
            _record(options.directory / f"{trace}.jsonl", options.batches, _TRACES[trace])
        return 0
    for trace in options.traces:
        _print_table(trace)
    return 0


def _record(trace: Path, batches: int, settings: dict[str, str]) -> None:
    trace.unlink(missing_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir="/var/tmp"))
    remote = f"file://{directory}/remote"
    node = Node(directory / "node", f"{remote}/checkpoints", f"{remote}/blobs", log__level="info")
    node.faults = ["trace_cached_files"]
    node.environment = {TRACE: str(trace.absolute())}
    job = Job(directory, settings=_SETTINGS | settings)
    try:
        node.start()
        for start, last in enumerate(range(_BATCHES_OF_A_START - 1, batches, _BATCHES_OF_A_START)):
            job.arrive(last - _BATCHES_OF_A_START + 1, last)
            job.run(node, last)
            print(f"{trace.stem}: batch {last + 1} of {batches}", file=sys.stderr, flush=True)
            if trace.stem == "backups" and start % 2:
                subprocess.run(["tar", "-c", node.checkpoints], check=True, capture_output=True)
    finally:
        node.clean_up()
        shutil.rmtree(directory)


def _print_table(trace: Path) -> None:
    events = [Event(**json.loads(line)) for line in trace.read_text().splitlines()]
    footprint = largest_footprint(events)
    reads = sum(event.op == "read" for event in events)
    print(f"{trace.stem}: {len(events)} events, {reads} reads, at most {footprint:,} bytes")
    print(f"{'cache':>8}" + "".join(f"{name:>16}" for name in POLICIES))
    for share in _SHARES:
        results = [replayed(events, make(events), int(share * footprint)) for make in POLICIES.values()]
        found = "".join(f"{result.misses:>6} {result.fetched_bytes / 2**20:>5.1f} MiB" for result in results)
        print(f"{share:>8.0%}{found}")


if __name__ == "__main__":
    sys.exit(main())
