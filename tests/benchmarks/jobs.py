"""``python -m tests.benchmarks.jobs``: what the Spark jobs cost against the number of objects, and what the driver holds.

Stores are directories with checkpoints of both layouts and one orphan in twenty objects. Executors are processes of their
own (``local-cluster``), so that the driver's memory is the driver's. Written are numbers (JSON) and a plot (SVG): of the
processor time of the driver and all executors, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.checkpoints.formats.own import OwnFile, OwnMetadata, own_metadata
from holdfast_spark.jobs import inventory, orphans, scrub, usage, warm
from holdfast_spark.pipeline.local import stay_on_this_machine
from tests.benchmarks.cost_plot import plot
from tests.support.spark import files as spark_files

_JOBS = ("inventory", "orphans", "usage", "warm", "scrub")
_PER_OWNER = 1000
_AGE_SECONDS = 30 * 86400


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size, after one small run that warms everything up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--jobs", nargs="+", default=_JOBS, choices=_JOBS, help="an inventory is always made")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp/holdfast-jobs"))
    parser.add_argument("--output", type=Path, default=Path("jobs"), help="without the ending: .json and .svg")
    parser.add_argument("--master", default="local-cluster[2,1,640]")
    options = parser.parse_args(arguments)
    spark = _session(options.master)
    found: list[dict[str, Any]] = []
    for index, size in enumerate([min(options.sizes), *options.sizes]):
        measured = _measure(spark, size, options.directory / f"{index}", options.jobs)
        if index:
            found.append(measured)
            print(json.dumps(measured), flush=True)
            options.output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
            options.output.with_suffix(".svg").write_text(plot(found))
    spark.stop()
    return 0


def _session(master: str) -> SparkSession:
    stay_on_this_machine()
    builder = SparkSession.builder.master(master).appName("jobs")
    for name, value in (
        ("spark.driver.memory", "512m"),
        ("spark.executor.memory", "512m"),
        ("spark.sql.shuffle.partitions", "16"),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.log.level", "ERROR"),
        ("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]),
    ):
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _measure(spark: SparkSession, size: int, directory: Path, jobs: Sequence[str]) -> dict[str, Any]:
    """Return what each job costs, and the driver's peaks in MiB."""
    store = directory / "store"
    fill(store, size)
    jvm: Any = spark._jvm
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    heap = [pool for pool in pools if pool.getType().toString() == "Heap memory"]
    jvm.java.lang.System.gc()
    for pool in heap:
        pool.resetPeakUsage()
    listed, plans = str(directory / "inventory"), directory / "plans"
    plans.mkdir()
    address = f"file://{store}"
    lines: dict[str, tuple[Any, list[str]]] = {
        "inventory": (inventory, [address, listed]),
        "orphans": (orphans, [address, listed, "--plans", str(plans)]),
        "usage": (usage, [listed, "--report", str(directory / "usage.html")]),
        "warm": (warm, [address, listed, "--nodes", "a,b,c", "--output", str(directory)]),
        "scrub": (scrub, [address, listed, str(directory / "scrubbed")]),
    }
    costs = {name: _cost(job.main, *arguments) for name, (job, arguments) in lines.items() if name in ("inventory", *jobs)}
    shutil.rmtree(directory)
    return {
        "objects": size,
        "seconds": {job: seconds for job, (seconds, _) in costs.items()},
        "processor_seconds": {job: seconds for job, (_, seconds) in costs.items()},
        "driver_heap_peak_mib": round(sum(pool.getPeakUsage().getUsed() for pool in heap) / 2**20),
        "driver_python_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _cost(job: Any, *arguments: str) -> tuple[float, float]:
    """Return the seconds that a job takes by the clock, and those of processors."""
    began, used = time.monotonic(), _processor_seconds()
    with redirect_stdout(StringIO()):
        if job(arguments):
            raise RuntimeError(f"{job.__module__} failed")
    return round(time.monotonic() - began, 2), round(_processor_seconds() - used, 2)


def _processor_seconds() -> float:
    """Return what this process and all below it have used, with those of them that have ended."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def fill(store: Path, size: int) -> None:
    """Write a store of about ``size`` objects: jobs and queries by turns, a thousand objects each.

    What nobody reads is a link to one file: a million of them are there in seconds.
    """
    for number in range(max(1, size // _PER_OWNER)):
        unread = store.parent / f"unread-{number}"
        _write(unread, b"x")
        for name, content in _job(number) if number % 2 else _query(number):
            file = store / name
            if content == b"x":
                file.parent.mkdir(parents=True, exist_ok=True)
                file.hardlink_to(unread)
            else:
                _write(file, content)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, (time.time() - _AGE_SECONDS,) * 2)


def _job(number: int) -> Iterator[tuple[str, bytes]]:
    job = f"jobs/{number:032x}"
    shared = [f"shared/{number:016x}{index:016x}" for index in range(_PER_OWNER - 2)]
    orphaned = len(shared) // 20
    for checkpoint in (7, 8):
        files = tuple(OwnFile(name, 1, "") for name in shared[orphaned:])
        yield f"{job}/chk-{checkpoint}/_metadata", own_metadata(OwnMetadata(checkpoint, files))
    yield from ((f"{job}/{name}", b"x") for name in shared)


def _query(number: int) -> Iterator[tuple[str, bytes]]:
    query = f"queries/{number}"
    yield f"{query}/metadata", b"{}"
    for batch in (8, 9):
        yield f"{query}/offsets/{batch}", b"v1\n{}"
        yield f"{query}/commits/{batch}", spark_files.commit()
    for partition in range(4):
        store = f"{query}/state/0/{partition}"
        ssts = [f"{index:06}-{uuid.uuid4()}.sst" for index in range(_PER_OWNER // 4 - 3)]
        yield f"{store}/9.zip", spark_files.snapshot(ssts[len(ssts) // 20 :])
        yield f"{store}/10.changelog", b"x"
        yield from ((f"{store}/SSTs/{sst}", b"x") for sst in ssts)


if __name__ == "__main__":
    sys.exit(main())
