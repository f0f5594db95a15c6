"""Rows about Spark: a batch of the demo's job, and the first batch after a restart with much state.

Each side has a JVM of its own with the same settings; only its local directories and its checkpoint lie elsewhere: on the
plain disk, on the mount over ``file://``, or on the mount of another daemon over S3 that is 30 ms away. All sides live at
once and take turns; who has no turn is stopped (SIGSTOP).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast_spark.pipeline.data import arrive, split_flights
from tests.benchmarks import page_cache
from tests.benchmarks.report import Goal, Unit
from tests.benchmarks.rows import Row, Scale, Site, Target, Values
from tests.benchmarks.targets import Sides, started_node
from tests.support.delaying_proxy import delaying
from tests.support.node import Node
from tests.support.s3 import Versitygw

_AWAY_SECONDS = 0.015
"""Each way."""
_FILES = 40
_WARM_UP_BATCHES = 40
"""Until the JVM has compiled most of what a batch runs. All rounds together stay below 100, from where on each batch also
removes an old one."""
_COUNTED_BATCHES = 10
_BUILDING_BATCHES = 4
_FIRST_ROWS = 1_000
_SILENCE_SECONDS = 300.0
_LIKE_EXT4 = Goal(peer="ext4", at_least=1 / 1.1)
_FAR = Goal(peer="ext4", at_most_more=300.0)
_FEW_REQUESTS = Goal(at_most=1.2)
_PARTS = ("latestOffset", "walCommit", "addBatch", "commitOffsets")
"""The parts of a batch in which Spark touches its checkpoint, in their order."""


@dataclass
class _Place:
    """Where one side keeps its state. ``backing``: the checkpoint's directory on the plain disk."""

    local: Path
    checkpoint: Path
    backing: Path


class _Far:
    """A daemon whose stores are far away; it is started when it is asked for first."""

    def __init__(self, sides: Sides, server: Versitygw) -> None:
        self.server = server.below("far")
        self._sides = sides
        self._node: Node | None = None

    def node(self) -> Node:
        if self._node is None:
            stack = self._sides.at_end
            endpoint = stack.enter_context(delaying(self.server.endpoint, _AWAY_SECONDS))
            through = self.server.through(endpoint)
            urls = (through.below("checkpoints").url, through.below("blobs").url)
            directory = self._sides.directory / "far"
            self._node = stack.enter_context(started_node(directory, urls, through.environment))
        return self._node

    def objects(self) -> int:
        """Return how many objects are kept."""
        pages = self.server.client().get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.server.bucket, Prefix=self.server.below("checkpoints").prefix)
        return sum(len(page.get("Contents", [])) for page in found)


@dataclass
class _Job:
    """A job at one site: ``spark_job`` as a process group, and the files that arrive for it."""

    query: str
    site: Site
    place: _Place
    arrived: int = 0
    process: subprocess.Popen[str] | None = None
    done: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        """Return when there is a session; ``go`` starts the query."""
        directory = self.site.front
        self.place.local.mkdir(parents=True, exist_ok=True)
        (directory / "input").mkdir(exist_ok=True)
        paths = {"input": directory / "input", "output": directory / "output"}
        paths |= {"local": self.place.local, "checkpoint": self.place.checkpoint}
        options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
        with (directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.benchmarks.spark_job", "--query", self.query, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._next_fact()

    def go(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def batch(self, content: Path) -> dict[str, Any]:
        """Let one file arrive; return what Spark says of the batch that takes it."""
        renamed = content.with_name(f"{self.arrived:04}-{content.name}")
        os.link(content, renamed)
        try:
            arrive(renamed, self.site.front / "input")
        finally:
            renamed.unlink()
        self.arrived += 1
        return self._next_fact()

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL Python and JVM; return when both are gone."""
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            descriptors = [channel for channel in (self.process.stdin, self.process.stdout) if channel is not None]
            if self.process.stdout is not None:
                self.process.stdout.read()  # the JVM has it too: it ends with the last of them
            for channel in descriptors:
                with suppress(BrokenPipeError):
                    channel.close()
            self.process = None

    def _signal(self, number: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _next_fact(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], _SILENCE_SECONDS)[0]
        line = self.process.stdout.readline() if ready else ""
        if not line:
            log = (self.site.front / "log").read_text(errors="replace").splitlines()
            raise AssertionError("\n".join(["the Spark job ended, or says nothing; the end of its log:", *log[-25:]]))
        fact: dict[str, Any] = json.loads(line)
        return fact


class _Bench:
    """What the rows share: places, jobs, input files."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.far = _Far(sides, sides.server) if isinstance(sides.server, Versitygw) else None
        self._jobs: dict[str, _Job] = {}

    def targets(self) -> list[Target]:
        """Return the sides. Input, output and log of all of them are on the plain disk."""
        directory = self._sides.directory / "spark"

        def target(name: str, command: str, *, ours: bool) -> Target:
            return Target(name, directory / name, directory / name, command, ours=ours)

        found = [
            target("ext4", "local directories and checkpoint on the plain disk", ours=False),
            target("file", "holdfast: local directories in work/, checkpoint in checkpoints/ over file://", ours=True),
        ]
        if self.far is not None:
            found.append(target("s3-30ms", "the same over S3 (versitygw) 30 ms away, level commit", ours=True))
        return found

    def begin(self, query: str, site: Site) -> _Job:
        """Make the site and start its job."""
        site.front.mkdir(parents=True)
        place = self._place(site)
        job = self._jobs[str(site.front)] = _Job(query, site, place)
        self._sides.at_end.callback(job.kill)
        job.start()
        return job

    def job(self, site: Site) -> _Job:
        """Return the job of the site."""
        return self._jobs[str(site.front)]

    def end(self, site: Site) -> None:
        """Kill the job, and remove what it kept."""
        job = self._jobs.pop(str(site.front))
        job.kill()
        for directory in (job.place.local, job.place.checkpoint):
            shutil.rmtree(directory)

    def flights(self) -> list[Path]:
        """Return the files of flights, in a directory of their own."""
        directory = self._sides.directory / "flights"
        return sorted(directory.iterdir()) if directory.exists() else split_flights(directory, _FILES)

    def _place(self, site: Site) -> _Place:
        if not site.target.ours:
            return _Place(site.front / "local", site.front / "checkpoint", site.front / "checkpoint")
        assert self.far is not None or site.target.name == "file"
        node = self._sides.node if site.target.name == "file" else self._far_node()
        checkpoint = node.checkpoints / site.front.name
        return _Place(node.work / "spark_1" / "tmp" / site.front.name, checkpoint, node.backing(checkpoint))

    def _far_node(self) -> Node:
        assert self.far is not None
        return self.far.node()


def rows(sides: Sides, scale: Scale) -> list[Row]:
    """Return the rows."""
    bench = _Bench(sides)
    plain, *ours = bench.targets()
    near, far = ours[0], ours[1:]
    every = (plain, *ours)

    def row(name: str, what: str, setup: Callable[[Site], None], action: Callable[[Site], Values], **more: Any) -> Row:
        settings = {"unit": Unit.MILLISECONDS, "targets": every, "fresh": False, "teardown": bench.end, **more}
        return Row(name=name, what=what, setup=setup, action=action, **settings)

    found = [
        row(
            "spark-batch",
            f"a batch of the demo's job; median of {scale.batches} in each round",
            partial(_warm_up, bench),
            partial(_batches, bench),
            goals={near.name: _LIKE_EXT4, **{target.name: _FAR for target in far}},
        ),
        row(
            "spark-restart",
            f"the first batch after a restart of the job, with {scale.state_keys:,} keys of 128 bytes in RocksDB",
            partial(_build, bench),
            partial(_restart, bench),
            goals={target.name: _LIKE_EXT4 for target in ours},
        ),
    ]
    if far:
        found.append(
            row(
                "spark-requests",
                f"requests to the store for each object that {_COUNTED_BATCHES} batches of the demo's job leave there",
                partial(_warm_up, bench),
                partial(_requests, bench),
                unit=Unit.REQUESTS,
                targets=tuple(far),
                goals={target.name: _FEW_REQUESTS for target in far},
                most_rounds=1,
            )
        )
    return found


def _warm_up(bench: _Bench, site: Site) -> None:
    job = bench.begin("flights", site)
    job.go()
    for _ in range(_WARM_UP_BATCHES):
        _batch_of_flights(bench, job)
    job.stop()


def _batches(bench: _Bench, site: Site) -> Values:
    job = bench.job(site)
    job.resume()
    done = [_batch_of_flights(bench, job) for _ in range(site.scale.batches)]
    job.stop()
    parts = {part: statistics.median(batch["parts"].get(part, 0) for batch in done) for part in _PARTS}
    return {"": statistics.median(batch["milliseconds"] for batch in done), **parts}


def _batch_of_flights(bench: _Bench, job: _Job) -> dict[str, Any]:
    files = bench.flights()
    return job.batch(files[job.arrived % len(files)])


def _requests(bench: _Bench, site: Site) -> Values:
    assert bench.far is not None
    job, server = bench.job(site), bench.far.server
    before = bench.far.objects()
    job.resume()
    server.clear_log()
    for _ in range(_COUNTED_BATCHES):
        _batch_of_flights(bench, job)
    requests = server.requests()
    job.stop()
    kept = bench.far.objects() - before
    return {"": sum(requests.values()) / kept, **{name: count / kept for name, count in requests.most_common()}}


def _build(bench: _Bench, site: Site) -> None:
    """Build the state, and kill the job when it is safe."""
    job = bench.begin("keys", site)
    job.go()
    count = site.scale.state_keys // _BUILDING_BATCHES
    for number in range(_BUILDING_BATCHES):
        job.batch(_keys(site, number * count, count))
    job.batch(_keys(site, 0, _FIRST_ROWS))
    job.kill()


def _restart(bench: _Bench, site: Site) -> Values:
    job = bench.job(site)
    values = {}
    for name, prepare in (("page cache warm", page_cache.read), ("page cache cold", page_cache.drop)):
        shutil.rmtree(job.place.local)
        job.start()
        for path in _files(job.place.backing):
            prepare(path)
        content = _keys(site, job.arrived * _FIRST_ROWS, _FIRST_ROWS)
        os.sync()  # or it waits for what was written before: a gigabyte of it
        job.go()
        values[name] = float(job.batch(content)["milliseconds"])
        job.kill()
    return values


def _keys(site: Site, first: int, count: int) -> Path:
    path = site.front / "keys.csv"
    path.write_text(f"{first},{count}\n")
    return path


def _files(directory: Path) -> Iterator[Path]:
    for base, _, names in os.walk(directory):
        yield from (Path(base, name) for name in names)
