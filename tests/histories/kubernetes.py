"""``./run python -m tests.histories.kubernetes IMAGE``: the chart on a real Kubernetes, whose pods are killed and replaced.

IMAGE is the archive that ``systemd.kubernetes.image`` makes. Pods on a node watch the mount by each way to have it. After
each thing that happens a row says how long the longest of their rounds took, and which errors they had. It exits with 1 if
there was an error, something below the mount, or too much memory in keeper or driver. Kubernetes' programs are built at the
first time, which takes twelve minutes of processor time; the rest takes two minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.daemons.node import wait_until
from tests.support.kubernetes.application_pods import restricted_pod
from tests.support.kubernetes.cluster import KubernetesCluster, kubernetes_cluster, run_with_a_network_of_its_own
from tests.support.kubernetes.driver import MOST_BYTES
from tests.support.kubernetes.kubectl import wait_for_kubernetes
from tests.support.kubernetes.programs import VERSION
from tests.support.kubernetes.release import MOUNTPOINT, Release
from tests.support.kubernetes.watching_pods import WatchingPods
from tests.support.stores.s3 import serving_versitygw

_MOST_MEMORY = {"keeper": 15_000_000, "csi": MOST_BYTES}
"""In bytes, of one process."""
_HEAD = "| what happened | until all was ready again | longest wait of a pod | errors in pods |"


class History:
    """A release, what is done to it, and the rows of the table, printed as they come. ``faults`` has what should not be."""

    def __init__(self, cluster: KubernetesCluster, release: Release) -> None:
        self._cluster = cluster
        self._release = release
        (self._node,) = cluster.nodes
        self.faults: list[str] = []

    def run(self) -> None:
        """Install the release under pods that wait for it, let all happen to it, remove it, and install it again."""
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        pods = self._pods_before_the_release("first")
        self._all_that_happens(pods)
        self._nothing_is_below()
        self._memory_is_small()
        pods.end()
        with self._release.client(self._node) as client:
            wait_until(lambda: all(info.holder is None for info in client.workdirs()))
        self._print("`helm uninstall`, after these pods", self._timed(self._release.uninstall), "", "")
        self._mounts_are()
        self._release.delete_unmounting()
        pods = self._pods_before_the_release("second")
        seconds = self._timed(self._release.uninstall)
        pods.fail()
        self._print("`helm uninstall` under pods that work", seconds, "", ", ".join(pods.errors()))
        self._mounts_are(volumes=pods.bound_by_the_driver)  # which end with their pods
        self._nothing_is_below()
        self._print("`helm install` again, and those pods end", self._timed(lambda: self._installs_and_ends(pods)), "", "")
        self._mounts_are(MOUNTPOINT)
        pods = WatchingPods(self._cluster, "third")
        pods.start_on_volumes()
        pods.start_on_paths()
        pods.wait_until_at_work()
        self._row(pods, "new pods of the DaemonSet `-unmount` that was left", self._replace_unmounting)
        pods.end()
        self._print("a pod of the profile `restricted`", self._timed(self._restricted_pod_works), "", "")

    def _restricted_pod_works(self) -> None:
        within = self._cluster.kubectl.make_namespace("restricted", profile="restricted")
        within.apply(
            [restricted_pod("it", f"localhost/holdfast:{self._release.tag}", "echo $(id -u) written >file && cat file")]
        )
        wait_for_kubernetes(lambda: within.get("pod", "it")["status"]["phase"] in ("Succeeded", "Failed"))
        if (said := within.run("logs", "it").strip()) != "1000 written":
            self.faults.append(f"a pod of the profile restricted: {said}")

    def _installs_and_ends(self, pods: WatchingPods) -> None:
        pods.end(wait=False)  # without a driver kubelet can't take their volumes away
        self._release.install()
        self._release.wait_rolled_out()
        wait_for_kubernetes(pods.are_gone)

    def _replace_unmounting(self) -> None:
        self._release.replace_unmounting()
        before = self._release.status(self._node).kernel_requests["STATFS"]
        wait_until(lambda: self._release.status(self._node).kernel_requests["STATFS"] >= before + 3)  # they have looked

    def _pods_before_the_release(self, name: str) -> WatchingPods:
        pods = WatchingPods(self._cluster, name)
        pods.start_on_volumes()
        began = time.monotonic()
        self._release.install()
        self._release.wait_rolled_out()
        pods.start_on_paths()
        pods.wait_until_at_work()
        self._print(f"{name} pods, then `helm install`", time.monotonic() - began, "", "")
        self._note_errors(pods)
        return pods

    def _all_that_happens(self, pods: WatchingPods) -> None:
        release, node = self._release, self._node

        def another_keeper() -> None:
            release.replace_pods("keeper")
            wait_until(lambda: release.is_kept(node))

        def another_kubelet() -> None:
            node.restart_kubelet(self._cluster.access)
            release.replace_pods("csi")

        for number in range(1, 4):
            self._row(pods, f"SIGKILL of the daemon, number {number}", lambda: release.kill_daemon(node))
        self._row(pods, "SIGKILL of the daemon's container", lambda: release.kill_container(node))
        self._row(pods, "the same at once again", lambda: release.kill_container(node))
        self._row(pods, "and a third time", lambda: release.kill_container(node))
        self._row(pods, "`kubectl delete pod` of the daemon", lambda: release.replace_pods("daemon"))
        self._row(pods, "`kubectl rollout restart` of the daemons", release.restart)
        self._row(pods, "`helm upgrade` to another tag of the image", lambda: release.upgrade("another"))
        self._row(pods, "`kubectl delete pod` of the keeper", another_keeper)
        self._row(pods, "SIGKILL of the daemon under that keeper", lambda: release.kill_daemon(node))
        self._row(pods, "`kubectl rollout restart` under that keeper", release.restart)
        self._row(pods, "`kubectl delete pod` of the driver", lambda: release.replace_pods("csi"))
        self._row(pods, "SIGKILL of kubelet, and of the driver's pod under the next one", another_kubelet)

    def _row(self, pods: WatchingPods, what: str, does: Callable[[], object]) -> None:
        """Do a thing; print what it has meant for the pods."""
        seconds = self._timed(does)
        longest = pods.longest_seconds()
        self._print(what, seconds, f"{longest:.1f} s", ", ".join(self._note_errors(pods)) or "none")

    def _note_errors(self, pods: WatchingPods) -> list[str]:
        new = [error for error in pods.errors() if error not in self.faults]
        self.faults += new
        return new

    def _nothing_is_below(self) -> None:
        self.faults += [f"below the mount: {name}" for name in os.listdir(self._node.below(MOUNTPOINT))]

    def _mounts_are(self, *expected: Path, volumes: int = 0) -> None:
        """Note a fault unless the node has Holdfast's mount at these places, and as many volumes of pods."""
        others = _mounts(Path("/proc/self/mounts").read_text())  # the node's namespace began as a copy of ours
        at = [path for path in _mounts(self._node.does("cat", "/proc/self/mounts")) if path not in others]
        of_pods = [path for path in at if path.is_relative_to("/var/lib/kubelet")]
        if set(at) - set(of_pods) != set(expected) or len(of_pods) != volumes:
            self.faults.append(f"mounted, but for {volumes} volumes and {expected}: {at}")

    def _memory_is_small(self) -> None:
        for component, most in _MOST_MEMORY.items():
            (pod,) = self._release.pods(component)
            pids = [pid for pid, command in self._node.processes(pod["metadata"]["uid"]).items() if "holdfast" in command]
            assert pids, f"no process of {component}"
            for memory in map(self._node.memory, pids):
                print(f"memory of {component}: {memory}", file=sys.stderr, flush=True)
                if memory.resident > most:
                    self.faults.append(f"memory of {component}: {memory}")

    def _timed(self, does: Callable[[], object]) -> float:
        began = time.monotonic()
        does()
        return time.monotonic() - began

    def _print(self, what: str, seconds: float, longest: str, errors: str) -> None:
        print(f"| {what} | {seconds:.1f} s | {longest} | {errors} |", flush=True)


def _mounts(table: str) -> list[Path]:
    """Return where a table of mounts, as in ``/proc``, has Holdfast's."""
    return [Path(at) for _, at, kind, *_ in map(str.split, table.splitlines()) if kind == "fuse.holdfast"]


def main() -> int:
    """Do all of it; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.kubernetes", description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    run_with_a_network_of_its_own()
    print(f"Kubernetes {VERSION}; load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    with (
        kubernetes_cluster(1, options.image.absolute(), options.directory) as cluster,
        serving_versitygw(cluster.directory) as server,
    ):
        history = History(cluster, Release(cluster, server))
        history.run()
    for fault in history.faults:
        print(f"wrong: {fault}", file=sys.stderr, flush=True)
    return 1 if history.faults else 0


if __name__ == "__main__":
    sys.exit(main())
