"""The chart as a release on a cluster, over an S3 server, and its pods on the first node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.control.client import ControlClient
from holdfast.control.messages import Status
from holdfast.errors import HoldfastError
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.cluster import KubernetesCluster
from tests.support.kubernetes.kubectl import Kubectl, wait_for_kubernetes
from tests.support.kubernetes.kubelet_node import KubeletNode
from tests.support.stores.s3 import S3Server

NAMESPACE = "holdfast"
MOUNTPOINT = Path("/mnt/holdfast")
RUN = Path("/run/holdfast")
_CHART = Path(__file__).parents[3] / "systemd/kubernetes/chart"
_SECRET = "holdfast-s3"
_IMAGE = "localhost/holdfast"


class Release:
    """``tag`` is that of the image which its pods have now. ``log_level`` is the daemons'."""

    def __init__(self, cluster: KubernetesCluster, server: S3Server, tag: str = "latest", log_level: str = "info") -> None:
        self._cluster = cluster
        self._server = server
        self.tag = tag
        self._log_level = log_level
        self._values = cluster.directory / "values.json"
        self.kubectl: Kubectl = cluster.kubectl.within(NAMESPACE)

    def install(self) -> None:
        """Install the chart; return when that is told, not when its pods are ready."""
        stores = "".join(
            f'[stores.{name}]\nurl = "{self._server.below(name).url}"\nuid = 185\n' for name in ("checkpoints", "blobs")
        )
        log = f'[log]\nlevel = "{self._log_level}"\n'
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _SECRET},
            "stringData": self._server.environment,
        }
        self._cluster.kubectl.make_namespace(NAMESPACE, profile="privileged")
        self.kubectl.apply([secret])
        self._values.write_text(json.dumps({"config": log + stores, "credentials": {"existingSecret": _SECRET}}))
        self._cluster.helm("install", "holdfast", str(_CHART), *self._settings())

    def upgrade(self, tag: str) -> None:
        """Give the nodes the same image by another tag, and let the release have that; return when its daemons have it."""
        for node in self._cluster.nodes:
            node.ctr("images", "tag", f"{_IMAGE}:{self.tag}", f"{_IMAGE}:{tag}")
        self.tag = tag
        self._cluster.helm("upgrade", "holdfast", str(_CHART), *self._settings())
        self.wait_rolled_out()

    def restart(self) -> None:
        """Have Kubernetes replace the daemons' pods; return when it has."""
        self.kubectl.run("rollout", "restart", "daemonset/holdfast-daemon")
        self.wait_rolled_out()

    def wait_rolled_out(self) -> None:
        """Wait until the pods of daemons and drivers are those that the release wants, and ready."""
        for component in ("daemon", "csi"):
            self.kubectl.run("rollout", "status", f"daemonset/holdfast-{component}", "--timeout=300s")

    def uninstall(self) -> None:
        """Remove the release; return when each node has unmounted. What has done that stays."""
        self._cluster.helm("uninstall", "holdfast", f"--namespace={NAMESPACE}")
        self.kubectl.run("rollout", "status", "daemonset/holdfast-unmount", "--timeout=300s")

    def delete_unmounting(self) -> None:
        """Delete what ``uninstall`` leaves."""
        self.kubectl.delete("daemonset", "holdfast-unmount")

    def replace_unmounting(self) -> None:
        """Have the pods that ``uninstall`` leaves begin again; return when they run."""
        before = {pod["metadata"]["uid"] for pod in self.pods("unmount")}
        self.kubectl.delete("pod", "--selector=app.kubernetes.io/component=unmount")
        wait_for_kubernetes(lambda: self._unmounting() != set() and self._unmounting().isdisjoint(before))

    def _unmounting(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods("unmount") if pod["status"]["phase"] == "Running"}

    def pods(self, component: str) -> list[Any]:
        """Return the pods of a component that are not being deleted."""
        return self.kubectl.pods(f"app.kubernetes.io/component={component}")

    def replace_pods(self, component: str) -> None:
        """Delete the pods of a component; return when others are ready."""
        before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.pods(component)}
        self.kubectl.delete("pod", *before.values())
        self.kubectl.wait_ready(f"app.kubernetes.io/component={component}", but_not=before, count=len(before))

    def client(self, node: KubeletNode) -> ControlClient:
        """Return a client of a node's daemon."""
        return ControlClient(node.seen(RUN / "control.sock"))

    def status(self, node: KubeletNode) -> Status:
        """Return what a node's daemon says."""
        with self.client(node) as client:
            return client.status()

    def is_kept(self, node: KubeletNode) -> bool:
        """Say whether a node's mount outlives its daemon."""
        return not any("the mount ends with" in problem for problem in self.status(node).problems)

    def kill_daemon(self, node: KubeletNode) -> None:
        """SIGKILL a node's daemon; return when another one answers, which its supervisor has started."""
        before = self.status(node).pid
        node.does("kill", "-KILL", str(before))
        self._wait_for_another(node, before)

    def kill_container(self, node: KubeletNode) -> None:
        """SIGKILL the first process of a daemon's container; return when another daemon answers, by kubelet's doing."""
        before = self.status(node).pid
        supervisor = int(Path(f"{node.seen(Path('/'))}/proc/{before}/stat").read_text().rpartition(")")[2].split()[1])
        node.does("kill", "-KILL", str(supervisor))
        self._wait_for_another(node, before)

    def _settings(self) -> list[str]:
        return [f"--namespace={NAMESPACE}", f"--values={self._values}", f"--set=image.tag={self.tag}"]

    def _wait_for_another(self, node: KubeletNode, but_not: int) -> None:
        def is_there() -> bool:
            try:
                return self.status(node).pid != but_not
            except HoldfastError:
                return False

        wait_until(is_there, 600.0)
