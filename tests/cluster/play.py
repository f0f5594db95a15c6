"""The demo's job while faults strike: what each costs until the next batch is committed, and whether the answer is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_spark.demo.driver import Batch, Driver, DriverError
from tests.cluster.cluster import Cluster
from tests.cluster.faults import Fault, Scene
from tests.cluster.job import ClusterJob
from tests.cluster.placed import held_by

_BATCHES = 2
"""For each fault: one in which it strikes, one after it is mended."""
_SETTLING_BATCHES = 20
_FOR_EVER = 10**6
Counts = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Outcome:
    """What one fault did. ``seconds`` are from the strike, or the driver's new start after it, to the next commit.

    Bytes are those of all nodes from the beginning of the batch in which it strikes to the second commit after it, without
    those of standby copies. ``ended``: the query ended, and had to be started again once the fault was mended.
    ``differences``: rows of the answer that are missing or wrong.
    """

    fault: str
    seconds: float
    disk_bytes: int
    store_bytes: int
    ended: bool
    differences: int


class Play:
    """A job on a cluster, and its driver. ``end`` kills the driver."""

    def __init__(self, cluster: Cluster, job: ClusterJob, tell: Callable[[str], None]) -> None:
        self.scene = Scene(cluster, *cluster.nodes[:2])
        self.job = job
        self._tell = tell
        self._driver: Driver | None = None

    def strike(self, fault: Fault, *, compare: bool = True) -> Outcome:
        """Let a fault strike in the middle of a batch; return when the batch after it is committed, and mended.

        Without ``compare`` the answer is not looked at.
        """
        self._settle()
        before = self._counts()  # while nothing runs: it takes as long as a batch
        last = self.job.arrive(_BATCHES)
        driver = self.driver
        driver.run_until_entered(last - 1, self._batch)
        began, ended = time.monotonic(), False
        self._tell(f"strikes: {fault.name}")
        if fault.kills_driver:
            driver.kill()
        fault.strike(self.scene)
        if fault.mends_at_once:
            fault.mend(self.scene)
        if fault.kills_driver:
            driver, began = self._start(), time.monotonic()
        try:
            driver.run_until_done(last - 1, self._batch)
        except DriverError as problem:
            self._tell(f"the query ended: {_reason(problem)}")
            driver.kill()
            ended = True
            fault.mend(self.scene)
            driver = self._start()
            driver.run_until_done(last - 1, self._batch)
        seconds = time.monotonic() - began
        if not (ended or fault.mends_at_once):
            fault.mend(self.scene)
        self.scene.cluster.tell_ways_in()
        driver.run_until_done(last, self._batch)
        moved = self._moved(before)
        return Outcome(fault.name, seconds, *moved, ended, self.differences() if compare else 0)

    def _settle(self) -> None:
        """Run batches until all nodes work on their share of the state, so that the fault strikes something."""
        cluster = self.scene.cluster
        least = cluster.settings.partitions // len(cluster.nodes) - 1
        shares: list[int] = []
        for _ in range(_SETTLING_BATCHES):
            last = self.job.arrive(1)
            self.driver.run_until_done(last, self._batch)
            shares = [len(held_by(node, self.job.name, from_version=last + 1)) for node in cluster.nodes]
            if min(shares) >= least:
                return
        raise AssertionError(f"after {_SETTLING_BATCHES} batches the nodes had {shares} partitions")

    def differences(self) -> int:
        """Return how many rows of the answer are missing or wrong."""
        answer = self.job.differences(self.scene.home)
        return answer["missing"] + answer["wrong"]

    @property
    def driver(self) -> Driver:
        """The driver that runs; it is started if there is none."""
        return self._driver or self._start()

    def end(self) -> None:
        """Kill the driver."""
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def _start(self) -> Driver:
        self._driver = self.job.driver(self.scene.home, _FOR_EVER)
        return self._driver

    def _batch(self, batch: Batch) -> None:
        self._tell(f"batch {batch.number}: {batch.milliseconds} ms")

    def _counts(self) -> Counts:
        """Return for each node that lives its daemon, and the bytes from its disk and from the store so far."""
        found: Counts = {}
        for node in self.scene.cluster.nodes:
            if node.lives:
                with node.client() as client:
                    status = client.status()
                found[node.name] = (node.first_pid * 2**22 + status.pid, *_bytes(status.counters))
        return found

    def _moved(self, before: Counts) -> tuple[int, int]:
        """Return the bytes from disks and from the store since; a daemon that is new counts from its own start."""
        disk_bytes = store_bytes = 0
        for name, (daemon, from_disk, from_store) in self._counts().items():
            earlier = before.get(name, (0, 0, 0))
            is_new = earlier[0] != daemon
            disk_bytes += from_disk - (0 if is_new else earlier[1])
            store_bytes += from_store - (0 if is_new else earlier[2])
        return disk_bytes, store_bytes


def _bytes(counters: dict[str, int]) -> tuple[int, int]:
    return counters["bytes_hit"], counters["bytes_fetched"] - counters["standby_bytes_fetched"]


def _reason(problem: DriverError) -> str:
    lines = str(problem).splitlines()
    return next((line.strip() for line in lines if "Caused by" in line), lines[-1].strip())
