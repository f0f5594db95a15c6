"""The sides of the rows about Spark: where each keeps its state, and the job that runs there.

They are the plain disk, the mount over ``file://``, and the mount of another daemon over S3 that is 30 ms away.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast_spark.pipeline.data import split_flights
from tests.benchmarks.rows import Site, Target
from tests.benchmarks.spark_process import Job, Place
from tests.benchmarks.targets import Sides, started_node
from tests.support.delaying_proxy import delaying
from tests.support.node import Node
from tests.support.s3 import Versitygw

_AWAY_SECONDS = 0.015
"""Each way."""
_FILES = 40


class Far:
    """A daemon whose stores are far away; it is started when it is asked for first."""

    def __init__(self, sides: Sides, server: Versitygw) -> None:
        self.server = server.below("far")
        self._sides = sides
        self._node: Node | None = None

    def node(self) -> Node:
        """Return the daemon's node."""
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


class Bench:
    """What the rows share: places, jobs, input files."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.far = Far(sides, sides.server) if isinstance(sides.server, Versitygw) else None
        self._jobs: dict[str, Job] = {}

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

    def begin(self, query: str, site: Site) -> Job:
        """Make the site and start its job."""
        site.front.mkdir(parents=True)
        place = self._place(site)
        job = self._jobs[str(site.front)] = Job(query, site, place)
        self._sides.at_end.callback(job.kill)
        job.start()
        return job

    def job(self, site: Site) -> Job:
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

    def _place(self, site: Site) -> Place:
        if not site.target.ours:
            return Place(site.front / "local", site.front / "checkpoint", site.front / "checkpoint")
        assert self.far is not None or site.target.name == "file"
        node = self._sides.node if site.target.name == "file" else self._far_node()
        checkpoint = node.checkpoints / site.front.name
        return Place(node.work / "spark_1" / "tmp" / site.front.name, checkpoint, node.backing(checkpoint))

    def _far_node(self) -> Node:
        assert self.far is not None
        return self.far.node()
