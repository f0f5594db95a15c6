"""``python -m tests.benchmarks.jobs``: what the Spark jobs cost against the number of objects, and what the driver holds.

Stores are directories with checkpoints of both layouts and one orphan in twenty objects. Executors are processes of their
own (``local-cluster``), so that the driver's memory is the driver's. Written are numbers (JSON) and a plot (SVG).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.checkpoints.manifests import OwnFile, OwnMetadata, own_metadata
from holdfast_spark.jobs import inventory, orphans, usage
from holdfast_spark.pipeline.local import stay_on_this_machine
from tests.support import spark_files

_PER_OWNER = 1000
_AGE_SECONDS = 30 * 86400
_WIDTH, _HEIGHT, _MARGIN = 640, 360, 60
_COLOURS = {"inventory": "#4477aa", "orphans": "#ee6677", "usage": "#228833"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size, after one small run that warms everything up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp/holdfast-jobs"))
    parser.add_argument("--output", type=Path, default=Path("jobs"), help="without the ending: .json and .svg")
    parser.add_argument("--master", default="local-cluster[2,1,640]")
    options = parser.parse_args(arguments)
    spark = _session(options.master)
    found: list[dict[str, Any]] = []
    for index, size in enumerate([min(options.sizes), *options.sizes]):
        measured = _measure(spark, size, options.directory / f"{index}")
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


def _measure(spark: SparkSession, size: int, directory: Path) -> dict[str, Any]:
    """Return seconds for each job, and the driver's peaks in MiB."""
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
    seconds = {
        "inventory": _timed(inventory.main, f"file://{store}", listed),
        "orphans": _timed(orphans.main, f"file://{store}", listed, "--plans", str(plans)),
        "usage": _timed(usage.main, listed, "--report", str(directory / "usage.html")),
    }
    with next(plans.glob("*.plan")).open() as stream:
        planned = json.loads(stream.readline())["count"]
    shutil.rmtree(directory)
    return {
        "objects": size,
        "planned": planned,
        "seconds": seconds,
        "driver_heap_peak_mib": round(sum(pool.getPeakUsage().getUsed() for pool in heap) / 2**20),
        "driver_python_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _timed(job: Any, *arguments: str) -> float:
    began = time.monotonic()
    with redirect_stdout(StringIO()):
        if job(arguments):
            raise RuntimeError(f"{job.__module__} failed")
    return round(time.monotonic() - began, 2)


def fill(store: Path, size: int) -> None:
    """Write a store of about ``size`` objects: jobs and queries by turns, a thousand objects each."""
    for number in range(max(1, size // _PER_OWNER)):
        files = _job(number) if number % 2 else _query(number)
        for name, content in files:
            file = store / name
            if not file.parent.is_dir():
                file.parent.mkdir(parents=True)
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


def plot(found: Sequence[dict[str, Any]]) -> str:
    """Draw microseconds an object against the number of objects, both logarithmic."""
    points = {job: [(each["objects"], each["seconds"][job] / each["objects"] * 10**6) for each in found] for job in _COLOURS}
    values = [value for line in points.values() for _, value in line]
    bottom, top = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right = math.log10(found[0]["objects"]), math.log10(max(found[-1]["objects"], found[0]["objects"] + 1))

    def place(objects: float, value: float) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (math.log10(objects) - left) / (right - left)
        return x, _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (math.log10(value) - bottom) / max(1, top - bottom)

    drawn = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>']
    for exponent in range(bottom, top + 1):
        _, y = place(found[0]["objects"], 10.0**exponent)
        drawn.append(f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        drawn.append(f'<text x="{_MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{10**exponent:,} µs</text>')
    for each in found:
        x, _ = place(each["objects"], 10.0**bottom)
        drawn.append(f'<text x="{x:.0f}" y="{_HEIGHT - _MARGIN + 20}" text-anchor="middle">{each["objects"]:,}</text>')
    for index, (job, line) in enumerate(points.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[job]}" stroke-width="2"/>')
        drawn.append(f'<text x="{_WIDTH - _MARGIN - 90}" y="{30 + 16 * index}" fill="{_COLOURS[job]}">{job}</text>')
    drawn.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">objects in the store</text>')
    drawn.append(f'<text x="{_MARGIN}" y="24">time for each object</text>')
    style = "text{font:12px system-ui,sans-serif}"
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"><style>{style}</style>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
