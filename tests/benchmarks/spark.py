"""Rows about Spark: a batch of the demo's job, and the first batch after a restart with much state.

Each side has a JVM of its own with the same settings; only its local directories and its checkpoint lie elsewhere
(``spark_sides``). All sides live at once and take turns; who has no turn is stopped (SIGSTOP).
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast_spark.after_batches import BATCHES
from holdfast_spark.class_archive import archive_path
from holdfast_spark.class_names import names_path
from tests.benchmarks import page_cache
from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Values
from tests.benchmarks.spark_process import Job, processor_milliseconds, written_bytes
from tests.benchmarks.spark_sides import Bench
from tests.support.daemons.node import wait_until

_COUNTED_BATCHES = 10
_BUILDING_BATCHES = 4
_FIRST_ROWS = 1_000
_LIKE_EXT4 = Goal(peer="ext4", at_least=1 / 1.1)
_FAR = Goal(peer="ext4", at_most_more=300.0)
_FEW_REQUESTS = Goal(at_most=1.2)
_ARCHIVE_SECONDS = 300.0
_PARTS = ("latestOffset", "walCommit", "addBatch", "commitOffsets")
"""The parts of a batch in which Spark touches its checkpoint, in their order."""
_PARTS_OF_RESTART = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")


def rows(bench: Bench, scale: Scale) -> list[Row]:
    """Return the rows."""
    on_this_disk = (bench.plain, bench.near, bench.copying)
    every = (*on_this_disk, *bench.far, *bench.others)

    def row(name: str, what: str, setup: Callable[[Site], None], action: Callable[[Site], Values], **more: Any) -> Row:
        settings = {"unit": Unit.MILLISECONDS, "targets": every, "fresh": False, "teardown": bench.end, **more}
        return Row(name=name, what=what, setup=setup, action=action, **settings)

    found = [
        row(
            "spark-batch",
            f"a batch of the demo's job; median of {scale.batches} in each round",
            partial(_warm_up, bench),
            partial(_batches, bench),
            goals={bench.near.name: _LIKE_EXT4, **{target.name: _FAR for target in bench.far}},
        ),
        row(
            "spark-restart",
            f"the first batch after a restart of the job, with {scale.state_keys:,} keys of 128 bytes in RocksDB",
            partial(_build, bench),
            partial(_restart, bench),
            goals={target.name: _LIKE_EXT4 for target in (bench.near, *bench.far)},
        ),
    ]
    found.append(
        row(
            "spark-snapshot",
            f"written to disks (/proc) for a batch of {scale.state_keys // _BUILDING_BATCHES:,} new keys and its snapshot",
            partial(_grow, bench),
            partial(_snapshot, bench),
            unit=Unit.MIB,
            targets=on_this_disk,
        )
    )
    if bench.far:
        found.append(
            row(
                "spark-requests",
                f"requests to the store for each object that {_COUNTED_BATCHES} batches of the demo's job leave there",
                partial(_warm_up, bench),
                partial(_requests, bench),
                unit=Unit.REQUESTS,
                targets=(*bench.far, *bench.others),
                goals={target.name: _FEW_REQUESTS for target in bench.far},
                most_rounds=1,
            )
        )
    return found


def _warm_up(bench: Bench, site: Site) -> None:
    job = bench.begin("flights", site)
    job.go()
    for _ in range(site.scale.warm_up_batches):
        _batch_of_flights(bench, job)
    job.stop()


def _batches(bench: Bench, site: Site) -> Values:
    job = bench.job(site)
    job.resume()
    done = [_batch_of_flights(bench, job) for _ in range(site.scale.batches)]
    job.stop()
    parts = {part: statistics.median(batch["parts"].get(part, 0) for batch in done) for part in _PARTS}
    return {"": statistics.median(batch["milliseconds"] for batch in done), **parts}


def _batch_of_flights(bench: Bench, job: Job) -> dict[str, Any]:
    files = bench.flights()
    return job.batch(files[job.arrived % len(files)])


def _requests(bench: Bench, site: Site) -> Values:
    job, server = bench.job(site), bench.side(site).server
    assert server is not None
    before = bench.objects(site)
    job.resume()
    server.clear_log()
    for _ in range(_COUNTED_BATCHES):
        _batch_of_flights(bench, job)
    requests = server.requests()
    job.stop()
    kept = bench.objects(site) - before
    return {"": sum(requests.values()) / kept, **{name: count / kept for name, count in requests.most_common()}}


def _build(bench: Bench, site: Site) -> None:
    """Build the state, and kill the job when it is safe."""
    job = bench.begin("keys", site)
    job.go()
    count = site.scale.state_keys // _BUILDING_BATCHES
    for number in range(_BUILDING_BATCHES):
        job.batch(_keys(site, number * count, count))
    job.batch(_keys(site, 0, _FIRST_ROWS))
    _end_as_usual(job)


def _end_as_usual(job: Job) -> None:
    """Kill a job that has done some batches, once its working directory has what the next start takes from there."""
    if job.place.socket is not None:
        wait_until(names_path(job.place.local).exists, _ARCHIVE_SECONDS)
    if job.place.keeps_classes:
        wait_until(archive_path(job.place.local).exists, _ARCHIVE_SECONDS)  # or it is made in another side's turn
    job.kill()


def _grow(bench: Bench, site: Site) -> None:
    bench.begin("keys", site).go()
    _snapshot(bench, site)


def _snapshot(bench: Bench, site: Site) -> Values:
    job, daemon = bench.job(site), bench.side(site).daemon()
    job.resume()
    before = job.written_bytes(), written_bytes([daemon])
    count = site.scale.state_keys // _BUILDING_BATCHES
    job.batch(_keys(site, job.arrived * count, count))
    after = job.written_bytes(), written_bytes([daemon])
    job.stop()
    by_spark, by_daemon = ((later - earlier) / 2**20 for earlier, later in zip(before, after, strict=True))
    return {"": by_spark + by_daemon, "by Spark": by_spark, "by the daemon": by_daemon}


def _restart(bench: Bench, site: Site) -> Values:
    job = bench.job(site)
    if job.place.backing is None:  # nothing of it is on the node, kept or lost, warm or cold
        cases = ("node kept, page cache warm", "node kept, page cache cold", "node lost")
        return dict.fromkeys(cases, _first_batch(bench, job)[""])
    values = {}
    for name, prepare in (("page cache warm", page_cache.read), ("page cache cold", page_cache.drop)):
        found = _first_batch(bench, job, prepare)
        values[f"node kept, {name}"] = found.pop("")
        values |= {f"node kept, {name}: {part}": value for part, value in found.items()}
    if bench.side(site).lose():
        values["node lost"] = _first_batch(bench, job)[""]
        job.start()  # for what drivers leave to each other has gone with the node
        job.go()
        for _ in range(BATCHES):
            job.batch(_keys(site, job.arrived * _FIRST_ROWS, _FIRST_ROWS))
        _end_as_usual(job)
    return values


def _first_batch(bench: Bench, job: Job, prepare: Callable[[Path], None] | None = None) -> dict[str, float]:
    """Restart the job; return how long its first batch takes (""), and its parts. ``prepare`` gets what is on the node of
    its checkpoint.
    """
    shutil.rmtree(job.place.local, ignore_errors=True)  # it went with the node, if that was lost
    job.start()
    if prepare is not None and job.place.backing is not None:
        for path in _files(job.place.backing):
            prepare(path)
    content = _keys(job.site, job.arrived * _FIRST_ROWS, _FIRST_ROWS)
    os.sync()  # or it waits for what was written before: a gigabyte of it
    before = _clocks(bench, job)
    began = time.monotonic()
    job.go()
    done = job.batch(content)
    told = job.start_milliseconds + 1000 * (time.monotonic() - began)
    after = _clocks(bench, job)
    job.kill()
    parts = {part: float(done["parts"].get(part, 0)) for part in _PARTS_OF_RESTART}
    parts |= {"start of the session": job.start_milliseconds, "all from the start of the process on": told}
    return {"": float(done["milliseconds"]), **parts, **{name: after[name] - before[name] for name in before}}


def _clocks(bench: Bench, job: Job) -> Values:
    side = bench.side(job.site)
    return {
        "processor time of Spark": job.processor_milliseconds(),
        "processor time of the daemon": processor_milliseconds([side.daemon()]),
        "requests of the mount, added up": side.waited_milliseconds(),
    }


def _keys(site: Site, first: int, count: int) -> Path:
    path = site.front / "keys.csv"
    path.write_text(f"{first},{count}\n")
    return path


def _files(directory: Path) -> Iterator[Path]:
    for base, _, names in os.walk(directory):
        yield from (Path(base, name) for name in names)
