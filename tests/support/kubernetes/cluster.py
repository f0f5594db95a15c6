"""A Kubernetes on this machine: etcd, API server, controllers, scheduler, and nodes with kubelets, all real.

It runs in the network namespace of whoever makes it, which must be one of its own. There is no name service and no
kube-proxy: pods reach each other and the API server by address.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.kubernetes.images import APPLICATION_IMAGE, write_application_image
from tests.support.kubernetes.kubectl import Kubectl, is_ready, wait_for_kubernetes
from tests.support.kubernetes.kubelet_node import KubeletNode
from tests.support.kubernetes.programs import debian_files, get_all, helm_program, kubernetes_programs, program
from tests.support.processes.children import DIES_WITH_US

API_SERVER = "https://10.99.0.1:6443"
_ETCD, _ETCD_PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
_OWN_FEATURES = {"KUBE_FEATURE_WatchListClient": "false"}  # Debian's etcd is older than what it takes
_START_SECONDS = 180.0
_OWN_NAMESPACES = ("unshare", "--mount", "--net", "--propagation", "private")
_IN_THEM = "HOLDFAST_TEST_OWN_NAMESPACES"


class KubernetesCluster:
    """``nodes``, and ``kubectl`` with all rights. ``shared``: a directory of the machine, for volumes of pods."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.nodes: list[KubeletNode] = []
        self._stack = stack
        self._programs = kubernetes_programs()
        self.access = directory / "access.json"
        self.kubectl = Kubectl(program("kubectl"), self.access)

    def start(self, nodes: int, image: Path) -> None:
        """Start all of it, with the images that pods have; return when all nodes are ready."""
        self._make_network(nodes)
        self._start_control_plane()
        own = self.directory / "application.tar"
        write_application_image(own)
        for number in range(1, nodes + 1):
            node = KubeletNode(number, self.directory / f"node{number}", self._programs, APPLICATION_IMAGE)
            self._stack.callback(node.end)
            node.start(self.access, [own, image])
            self.nodes.append(node)
        wait_for_kubernetes(lambda: sum(map(is_ready, self.kubectl.get("nodes")["items"])) == nodes, _START_SECONDS)
        wait_for_kubernetes(lambda: self.kubectl.answers("get", "serviceaccount", "default"), _START_SECONDS)

    def helm(self, *words: str) -> str:
        """Run helm; return what it prints."""
        command = [str(helm_program()), f"--kubeconfig={self.access}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _make_network(self, nodes: int) -> None:
        _ip("link", "add", "nodes", "type", "bridge")
        for number in range(1, nodes + 1):
            _ip("address", "add", f"10.99.0.{number}/24", "dev", "nodes")
        _ip("link", "set", "nodes", "up")
        _ip("route", "add", "default", "via", "10.99.0.254")  # the API server looks for one
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _start_control_plane(self) -> None:
        token, keys = secrets.token_hex(16), self.directory / "keys"
        (self.directory / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        subprocess.run(["openssl", "genrsa", "-out", str(keys), "2048"], check=True, capture_output=True)
        certificates = self.directory / "certificates"
        cluster = {"server": API_SERVER, "insecure-skip-tls-verify": True}
        access = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        self.access.write_text(json.dumps(access))
        self.access.chmod(0o600)
        etcd = [str(debian_files("etcd-server") / "usr/bin/etcd"), f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync"]
        etcd += [f"--listen-client-urls={_ETCD}", f"--advertise-client-urls={_ETCD}", f"--listen-peer-urls={_ETCD_PEERS}"]
        self._starts("etcd", *etcd)
        options = [f"--etcd-servers={_ETCD}", "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC"]
        options += [f"--service-account-key-file={keys}", f"--service-account-signing-key-file={keys}"]
        options += ["--service-account-issuer=https://kubernetes.default.svc", f"--cert-dir={certificates}"]
        options += [f"--token-auth-file={self.directory}/tokens.csv", "--advertise-address=10.99.0.1"]
        options += ["--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP"]
        options += ["--feature-gates=WatchList=false"]
        self._starts("kube-apiserver", str(self._programs / "kube-apiserver"), *options)
        wait_for_kubernetes(lambda: self.kubectl.answers("get", "--raw", "/readyz"), _START_SECONDS)
        controllers = [f"--kubeconfig={self.access}", f"--service-account-private-key-file={keys}", "--leader-elect=false"]
        controllers += ["--use-service-account-credentials=true", f"--root-ca-file={certificates}/apiserver.crt"]
        self._starts("controllers", str(self._programs / "kube-controller-manager"), *controllers)
        scheduler = [f"--kubeconfig={self.access}", "--leader-elect=false"]
        self._starts("scheduler", str(self._programs / "kube-scheduler"), *scheduler)

    def _starts(self, name: str, *command: str) -> None:
        """Start a program, which ends with the cluster."""
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*DIES_WITH_US, *command],
                env={**os.environ, **_OWN_FEATURES},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)


def run_with_a_network_of_its_own() -> None:
    """Run this program again in mount and network namespaces of its own, unless it does already."""
    if os.environ.get(_IN_THEM) != "yes":
        get_all()
        os.environ[_IN_THEM] = "yes"
        os.execvp(_OWN_NAMESPACES[0], [*_OWN_NAMESPACES, sys.executable, *sys.orig_argv[1:]])
    _ip("link", "set", "lo", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def kubernetes_cluster(nodes: int, image: Path, base: Path) -> Iterator[KubernetesCluster]:
    """Run a cluster for the duration of the block, in a new directory below ``base``, with the image of Holdfast."""
    directory = Path(tempfile.mkdtemp(prefix="hf-k8s-", dir=base))
    directory.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(_remove, directory)
        cluster = KubernetesCluster(directory, stack)
        cluster.start(nodes, image)
        yield cluster


def _remove(directory: Path) -> None:
    subprocess.run(["chattr", "-R", "-f", "-i", directory], check=False)  # as a daemon has made its mountpoint
    shutil.rmtree(directory)
