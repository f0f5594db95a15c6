"""``./run python -m tests.histories.kubernetes_spark IMAGE``: the demo's job as pods on a real Kubernetes, under kills.

There are two nodes, with a kubelet and an executor each. In the middle of a batch a pod is killed or replaced; when the
batches that have arrived are done, the answer is compared. First a new driver starts with executors of its own. Each
row says what the nodes' daemons have fetched, and how many requests of that were for files of state. The rest are the logs
of the query, which a driver reads that runs on another node than the one before it; stderr has the directories of all.

IMAGE is as for ``tests.histories.kubernetes``. With ``--only`` nothing happens but the start and what has one of these words
in its row. With ``--operator`` the job is the example of spark-operator, which submits it, again when its driver has ended.
With ``--logs`` the daemons log at ``debug``, and their logs of each row go to a directory, with the driver's: there is what
was fetched, and by whom. It exits with 1 if an answer was wrong, or if state was fetched at the start or after a new driver.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from holdfast.config.units import ByteSize
from holdfast.control.messages import Status
from tests.support.checkpoints.fetched_state import count_state
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.cluster import kubernetes_cluster, run_with_a_network_of_its_own
from tests.support.kubernetes.kubelet_node import KubeletNode
from tests.support.kubernetes.programs import VERSION, operator_program
from tests.support.kubernetes.release import Release
from tests.support.kubernetes.spark_operator import OperatedJob, install_operator
from tests.support.kubernetes.spark_pods import SparkPods
from tests.support.stores.s3 import Versitygw, serving_versitygw

_NODES = 2
_FILES = 60
_BEFORE_SECONDS = 5
_HEAD = (
    "| what happened in the middle of a batch | until the batches were done | fetched from the store "
    "| of it files of state | answer |"
)
_ANOTHER_DRIVER = "SIGKILL of the driver, and another one"


class _Play:
    """The job, and what happens to it."""

    def __init__(
        self, release: Release, job: SparkPods, nodes: list[KubeletNode], server: Versitygw, options: argparse.Namespace
    ) -> None:
        self._release, self._job, self._nodes, self._server = release, job, nodes, server
        self._arriving: int = options.arriving
        self._logs: Path | None = options.logs
        self._rows = 0
        self.faults: list[str] = []

    def row(self, what: str, strike: Callable[[], None], *, state_is_there: bool = False) -> None:
        """Let files arrive, do a thing in the middle of the second batch, and print what has come of it.

        With ``state_is_there`` each node is to find the state of its partitions at home: what is fetched of it is a fault.
        """
        last = self._job.arrive(self._arriving)
        self._job.enters(last - self._arriving + 2)
        before = self._fetched()
        self._server.clear_log()
        began = time.monotonic()
        strike()
        self._job.does(last)
        seconds = time.monotonic() - began
        fetched = sum(_since(*both) for both in zip(before, self._fetched(), strict=True))
        answer = self._job.differences()
        told = "equal"
        if wrong := answer["missing"] + answer["wrong"]:
            told = f"{wrong} rows wrong"
            self.faults.append(f"{what}: {told}")
        keys = self._server.fetched()
        state = count_state(keys)
        if state and state_is_there:
            self.faults.append(f"{what}: {state} files of state fetched")
        self._rows += 1
        if self._logs is not None:
            self._write_logs(self._logs / f"row{self._rows}", f"--since={time.monotonic() - began + _BEFORE_SECONDS:.0f}s")
        print(f"| {what} | {seconds:.1f} s | {ByteSize(fetched)} | {state} | {told} |", flush=True)
        directories = dict(Counter(key.rpartition("/")[0] for key in keys))
        print(f"fetched: {directories}; load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)

    def _write_logs(self, directory: Path, since: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for pod in self._release.pods("daemon"):
            told = self._release.kubectl.run("logs", pod["metadata"]["name"], "--all-containers", since)
            (directory / f"{pod['spec']['nodeName']}.log").write_text(told)
        (directory / "driver.log").write_text(self._job.said())

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
    parser.add_argument("--arriving", type=int, default=6, metavar="FILES", help="batches of a row (default: %(default)s)")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="have the daemons log all, and write it there")
    parser.add_argument("--operator", action="store_true", help="have Kubeflow's spark-operator submit the job")
    options = parser.parse_args()
    if options.operator:
        operator_program()  # takes a network
    run_with_a_network_of_its_own()
    print(f"Kubernetes {VERSION}, {_NODES} nodes; load average {os.getloadavg()[0]:.1f}", flush=True)
    with (
        kubernetes_cluster(_NODES, options.image.absolute(), options.directory) as cluster,
        serving_versitygw(cluster.directory) as server,
    ):
        release = Release(cluster, server, log_level="debug" if options.logs else "info")
        release.install()
        release.wait_rolled_out()
        if options.operator:
            install_operator(cluster)
        job = (OperatedJob if options.operator else SparkPods)(cluster, _FILES)
        play = _Play(release, job, cluster.nodes, server, options)
        job.submit()
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        play.row("nothing: the start", lambda: None, state_is_there=True)
        print(f"executors on {job.executors_nodes()}", file=sys.stderr)
        strikes = {
            _ANOTHER_DRIVER: job.replace_driver,  # first: later a node may have more than its share, and lose it to another
            "SIGKILL of an executor": play.executor,
            "SIGKILL of the daemons' containers": play.containers,
            "`kubectl delete pod` of the daemons": lambda: release.replace_pods("daemon"),
            "`kubectl delete pod` of the keepers": play.keepers,
            "`kubectl rollout restart` under those keepers": release.restart,
        }
        for what, strike in strikes.items():
            if not options.only or any(word in what for word in options.only):
                play.row(what, strike, state_is_there=what == _ANOTHER_DRIVER)
        print(f"executors on {job.executors_nodes()}", file=sys.stderr)
        for fault in play.faults:
            print(f"wrong: {fault}", file=sys.stderr, flush=True)
        return 1 if play.faults else 0


if __name__ == "__main__":
    sys.exit(main())
