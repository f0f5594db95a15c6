"""``./run python -m tests.histories.kubernetes_spark IMAGE``: the demo's job as pods on a real Kubernetes, under kills.

There are two nodes, with a kubelet and an executor each. In the middle of a batch a pod is killed or replaced; when the
batches that have arrived are done, the answer is compared. At the end a new driver starts with executors of its own, and
the row says what the nodes' daemons have fetched for it. IMAGE is as for ``tests.histories.kubernetes``. With ``--only``
nothing happens but the start and what has one of these words in its row. It exits with 1 if an answer was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.config.units import ByteSize
from holdfast.control.messages import Status
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.cluster import kubernetes_cluster, run_with_a_network_of_its_own
from tests.support.kubernetes.kubectl import wait_for_kubernetes
from tests.support.kubernetes.kubelet_node import KubeletNode
from tests.support.kubernetes.programs import VERSION
from tests.support.kubernetes.release import Release
from tests.support.kubernetes.spark_pods import SparkPods
from tests.support.stores.s3 import serving_versitygw

_NODES = 2
_FILES = 60
_ARRIVING = 6
_HEAD = "| what happened in the middle of a batch | until the batches were done | fetched from the store | answer |"


class _Play:
    """The job, and what happens to it."""

    def __init__(self, release: Release, job: SparkPods, nodes: list[KubeletNode]) -> None:
        self._release, self._job, self._nodes = release, job, nodes
        self.wrong = 0

    def row(self, what: str, strike: Callable[[], None]) -> None:
        """Let files arrive, do a thing in the middle of the second batch, and print what has come of it."""
        last = self._job.arrive(_ARRIVING)
        self._job.enters(last - _ARRIVING + 2)
        before = self._fetched()
        began = time.monotonic()
        strike()
        self._job.does(last)
        seconds = time.monotonic() - began
        fetched = sum(_since(*both) for both in zip(before, self._fetched(), strict=True))
        answer = self._job.differences()
        wrong = answer["missing"] + answer["wrong"]
        self.wrong += wrong
        told = f"{wrong} rows wrong" if wrong else "equal"
        print(f"| {what} | {seconds:.1f} s | {ByteSize(fetched)} | {told} |", flush=True)

    def new_driver(self) -> None:
        """Kill the driver, and submit the job again."""
        self._job.kill_driver()
        wait_for_kubernetes(lambda: not self._job.executors())
        self._job.submit()

    def executor(self) -> None:
        """Kill an executor."""
        self._job.kill(self._job.executors()[0])

    def keepers(self) -> None:
        """Replace the keepers' pods."""
        self._release.replace_pods("keeper")
        for node in self._nodes:
            wait_until(lambda node=node: self._release.is_kept(node))  # type: ignore[misc]

    def containers(self) -> None:
        """SIGKILL the daemons' containers."""
        for node in self._nodes:
            self._release.kill_container(node)

    def _fetched(self) -> list[Status]:
        return [self._release.status(node) for node in self._nodes]


def _since(then: Status, now: Status) -> int:
    """Return how much a daemon has fetched since; of the one before it, what it had fetched until then does not count."""
    before = int(then.counters["bytes_fetched"]) if then.pid == now.pid else 0
    return int(now.counters["bytes_fetched"]) - before


def main() -> int:
    """Do all of it; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.kubernetes_spark", description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--only", nargs="+", metavar="WORD", help="strike as the rows with these words alone")
    options = parser.parse_args()
    run_with_a_network_of_its_own()
    print(f"Kubernetes {VERSION}, {_NODES} nodes; load average {os.getloadavg()[0]:.1f}", flush=True)
    with (
        kubernetes_cluster(_NODES, options.image.absolute(), options.directory) as cluster,
        serving_versitygw(cluster.directory) as server,
    ):
        release = Release(cluster, server)
        release.install()
        release.wait_rolled_out()
        job = SparkPods(cluster, _FILES)
        play = _Play(release, job, cluster.nodes)
        job.submit()
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        play.row("nothing: the start", lambda: None)
        print(f"executors on {job.executors_nodes()}", file=sys.stderr)
        strikes = {
            "SIGKILL of an executor": play.executor,
            "SIGKILL of the daemons' containers": play.containers,
            "`kubectl delete pod` of the daemons": lambda: release.replace_pods("daemon"),
            "`kubectl delete pod` of the keepers": play.keepers,
            "`kubectl rollout restart` under those keepers": release.restart,
            "SIGKILL of the driver, and another one": play.new_driver,
        }
        for what, strike in strikes.items():
            if not options.only or any(word in what for word in options.only):
                play.row(what, strike)
        print(f"executors on {job.executors_nodes()}", file=sys.stderr)
        return 1 if play.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
