"""The sides of the rows about Spark: where each keeps its state, what its job needs for that, and how it is lost.

They are the plain disk, the mount over ``file://``, and for each line to a store the mount of another daemon over S3 behind
that line, and Hadoop's S3A on the same store behind the same line.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast_spark.linking import linking_settings
from holdfast_spark.pipeline.data import split_flights
from tests.benchmarks import s3a
from tests.benchmarks.rows import Site, Target
from tests.benchmarks.spark_process import Job, Place
from tests.benchmarks.store_lines import StoreLine
from tests.benchmarks.targets import Sides, started_node
from tests.support.daemons.node import Node
from tests.support.stores.delaying_proxy import delaying
from tests.support.stores.s3 import S3Server, Versitygw

_FILES = 40
_DURATIONS = "holdfast_operation_duration_seconds_sum"


class Side(Protocol):
    """Where a job keeps its state."""

    @property
    def server(self) -> Versitygw | None:
        """The place in the store that nobody else uses, where requests are counted."""

    def place(self, site: Site) -> Place:
        """Return where the site's job keeps its state."""

    def remove(self, place: Place) -> None:
        """Remove what a job has kept."""

    def lose(self) -> bool:
        """Lose what this node keeps of the checkpoint; return whether there is anything that can be lost."""

    def daemon(self) -> int | None:
        """Return the process that serves the side; None if the kernel does."""

    def waited_milliseconds(self) -> float:
        """Return the durations of all requests that the side's daemon has answered, added up; 0 if the kernel serves it."""


class PlainDisk:
    """The plain disk: what is lost there is lost for good."""

    server: Versitygw | None = None

    def place(self, site: Site) -> Place:
        """Return the site's own directory."""
        checkpoint = site.front / "checkpoint"
        return Place(site.front / "local", f"file://{checkpoint}", checkpoint)

    def remove(self, place: Place) -> None:
        """Remove what the job has kept."""
        shutil.rmtree(place.local)
        shutil.rmtree(place.checkpoint.removeprefix("file://"))

    def lose(self) -> bool:
        """Nothing of a checkpoint is elsewhere."""
        return False

    def daemon(self) -> int | None:
        """There is none."""
        return None

    def waited_milliseconds(self) -> float:
        """There are no requests."""
        return 0.0


class Mount:
    """A mount whose store is near."""

    server: Versitygw | None = None

    def __init__(self, node: Node, *, links: bool = True) -> None:
        self._node = node
        self._links = links

    def node(self) -> Node:
        """Return the daemon's node."""
        return self._node

    def place(self, site: Site) -> Place:
        """Return the job's working directory and checkpoint in the mount."""
        node, name = self.node(), f"{site.target.name}-{site.front.name}"
        checkpoint = node.checkpoints / name
        links = linking_settings(str(node.mountpoint), ["checkpoints", "blobs"]) if self._links else {}
        local = node.work / "spark_1" / "tmp" / name
        return Place(local, f"file://{checkpoint}", node.backing(checkpoint), links, node.socket)

    def remove(self, place: Place) -> None:
        """Remove what the job has kept."""
        shutil.rmtree(place.local)
        shutil.rmtree(place.checkpoint.removeprefix("file://"))

    def lose(self) -> bool:
        """Only stores behind a line are worth it."""
        return False

    def daemon(self) -> int | None:
        """Return Holdfast's."""
        return self.node().pid

    def waited_milliseconds(self) -> float:
        """Return what the daemon's own histograms say."""
        with self.node().client() as client:
            lines = client.metrics().splitlines()
        return 1000 * sum(float(line.split()[-1]) for line in lines if line.startswith(_DURATIONS))


class FarMount(Mount):
    """The mount of a daemon of its own behind a line; it is started when it is asked for first."""

    def __init__(self, sides: Sides, server: Versitygw, line: StoreLine) -> None:
        self.server: Versitygw = server.below(f"mount-{line.name}")
        self._links = True
        self._sides = sides
        self._line = line
        self._started: Node | None = None

    def node(self) -> Node:
        """Return the daemon's node."""
        if self._started is None:
            through = _behind(self._sides, self.server, self._line)
            urls = (through.below("checkpoints").url, through.below("blobs").url)
            directory = self._sides.directory / f"far-{self._line.name}"
            self._started = self._sides.at_end.enter_context(started_node(directory, urls, through.environment))
        return self._started

    def lose(self) -> bool:
        """The daemon is killed and its disk emptied; another one starts."""
        node = self.node()
        node.kill()
        node.lose_disk()
        node.start()
        return True


@dataclass
class S3a:
    """Hadoop's S3A; the job's local files are on the plain disk. Nothing of the checkpoint is on the node."""

    sides: Sides
    server: Versitygw
    line: StoreLine
    jars: Path
    _through: S3Server | None = field(default=None, init=False)

    def place(self, site: Site) -> Place:
        """Return the site's local directory, and its prefix in the store."""
        if self._through is None:
            self._through = _behind(self.sides, self.server, self.line)
        url = self._through.below("checkpoints").below(site.front.name).url.replace("s3://", "s3a://", 1)
        return Place(site.front / "local", url, None, s3a.settings(self._through, self.jars))

    def remove(self, place: Place) -> None:
        """Remove what the job has kept."""
        shutil.rmtree(place.local)
        prefix = place.checkpoint.removeprefix(f"s3a://{self.server.bucket}/")
        client = self.server.client()
        for key in _keys(self.server, prefix):
            client.delete_object(Bucket=self.server.bucket, Key=key)

    def lose(self) -> bool:
        """There is nothing to lose."""
        return False

    def daemon(self) -> int | None:
        """There is none."""
        return None

    def waited_milliseconds(self) -> float:
        """There are no requests."""
        return 0.0


class Bench:
    """What the rows share: sides, jobs, input files. ``jars``: those of S3A; None: it is left out."""

    def __init__(self, sides: Sides, lines: Sequence[StoreLine], jars: Path | None) -> None:
        self._directory = sides.directory
        self._at_end = sides.at_end
        self._sides: dict[str, Side] = {}
        self.plain = self._added("ext4", PlainDisk(), "local directories and checkpoint on the plain disk", ours=False)
        what = "holdfast: local directories in work/, checkpoint in checkpoints/ over file://"
        self.near = self._added("file", Mount(sides.node), what, ours=True)
        self.copying = self._added("file-copies", Mount(sides.node, links=False), f"{what}, without the jar", ours=True)
        self.far: list[Target] = []
        self.others: list[Target] = []
        for line in lines if isinstance(sides.server, Versitygw) else ():
            assert isinstance(sides.server, Versitygw)
            what = f"the same over S3 (versitygw) {line}, level commit"
            self.far.append(self._added(f"s3-{line.name}", FarMount(sides, sides.server, line), what, ours=True))
            if jars is not None:
                side = S3a(sides, sides.server.below(f"s3a-{line.name}"), line, jars)
                what = f"Hadoop's S3A {s3a.hadoop_version()} on the same server, {line}"
                self.others.append(self._added(f"s3a-{line.name}", side, what, ours=False))
        self._jobs: dict[str, Job] = {}

    def side(self, site: Site) -> Side:
        """Return where the site's target keeps its state."""
        return self._sides[site.target.name]

    def begin(self, query: str, site: Site) -> Job:
        """Make the site and start its job."""
        site.front.mkdir(parents=True)
        job = self._jobs[str(site.front)] = Job(query, site, self.side(site).place(site))
        self._at_end.callback(job.kill)
        job.start()
        return job

    def job(self, site: Site) -> Job:
        """Return the job of the site."""
        return self._jobs[str(site.front)]

    def end(self, site: Site) -> None:
        """Kill the job, and remove what it kept."""
        job = self._jobs.pop(str(site.front))
        job.kill()
        self.side(site).remove(job.place)

    def objects(self, site: Site) -> int:
        """Return how many objects the site's side keeps."""
        server = self.side(site).server
        assert server is not None
        return len(_keys(server, server.below("checkpoints").prefix))

    def flights(self) -> list[Path]:
        """Return the files of flights, in a directory of their own."""
        directory = self._directory / "flights"
        return sorted(directory.iterdir()) if directory.exists() else split_flights(directory, _FILES)

    def _added(self, name: str, side: Side, command: str, *, ours: bool) -> Target:
        """Add a side. Input, output and log of all of them are on the plain disk."""
        self._sides[name] = side
        directory = self._directory / "spark" / name
        return Target(name, directory, directory, command, ours=ours)


def _behind(sides: Sides, server: Versitygw, line: StoreLine) -> Versitygw:
    endpoint = sides.at_end.enter_context(delaying(server.endpoint, line.away_seconds, line.bytes_per_second))
    return server.through(endpoint)


def _keys(server: S3Server, prefix: str) -> list[str]:
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=prefix)
    return [found["Key"] for page in pages for found in page.get("Contents", [])]
