"""The demo's job on a cluster: files arrive in the common directory, and its driver runs on any node."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast_spark.demo.driver import Driver
from holdfast_spark.pipeline.data import arrive, split_flights
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.cluster.plans import PYTHON

_PATIENCE_SECONDS = 600.0
"""Three JVMs start before the first batch."""


class ClusterJob:
    """One query. ``name`` is that of its checkpoint; ``files`` is into how many the flights are divided."""

    def __init__(self, cluster: Cluster, name: str, files: int, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._cluster = cluster
        self._directory = cluster.shared / name
        every_core = cluster.settings.nodes * cluster.settings.cores
        self._settings = {
            "spark.sql.shuffle.partitions": str(cluster.settings.partitions),
            "spark.cores.max": str(every_core),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # or the first executor to come gets all of the state
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",  # Spark's default: one of them may be lost
            **(settings or {}),
        }
        self._input, self._output = self._directory / "arriving", self._directory / "output"
        self._staged = split_flights(self._directory / "flights", files)
        self._arrived = 0
        self._output.mkdir()
        owner = cluster.shared.stat()
        os.chown(self._output, owner.st_uid, owner.st_gid)

    def arrive(self, files: int) -> int:
        """Let so many more files arrive, one a batch; return the number of the last batch."""
        assert self._arrived + files <= len(self._staged), "the job has no more files"
        for path in self._staged[self._arrived : self._arrived + files]:
            arrive(path, self._input)
            self._arrived += 1
        return self._arrived - 1

    def driver(self, node: ClusterNode, until: int, log: str = "driver.log") -> Driver:
        """Start a driver on a node, to run to the end of batch ``until``."""
        assert self._cluster.master is not None
        command = ["--input", str(self._input), "--output", str(self._output), "--name", self.name]
        command += ["--until", str(until), "--master", self._cluster.master.url]
        command += [f"--conf={key}={value}" for key, value in self._settings.items()]
        return Driver(command, self.log(log), node.command(PYTHON), _PATIENCE_SECONDS)

    def log(self, name: str = "driver.log") -> Path:
        """Return the log of a driver."""
        return self._directory / name

    def differences(self, node: ClusterNode) -> dict[str, int]:
        """Compare with a batch computation over the same files, on one node."""
        command = [PYTHON, "-m", "holdfast_spark.pipeline.check", "--input", str(self._input), "--output", str(self._output)]
        answer: dict[str, int] = json.loads(node.run(*command).splitlines()[-1])
        return answer
