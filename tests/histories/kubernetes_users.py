"""``./run python -m tests.histories.kubernetes_users IMAGE``: which volumes a pod in a user namespace of its own can have.

Such a pod (``hostUsers: false``) takes containerd 2, and runc 1.2 or later, which are built at the first time. IMAGE is as
for ``tests.histories.kubernetes``. A row says for each kind of volume what the pod did, or why it does not run: Kubernetes
refuses it by the chart's policy, or its containers don't start. It exits with 1 if that is another than it should be.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.kubernetes.application_pods import PodVolume, application_pod, claimed
from tests.support.kubernetes.cluster import kubernetes_cluster, run_with_a_network_of_its_own
from tests.support.kubernetes.kubectl import Kubectl, KubectlError, wait_for_kubernetes
from tests.support.kubernetes.programs import VERSION, newer_containers
from tests.support.kubernetes.release import MOUNTPOINT, RUN, Release
from tests.support.stores.s3 import serving_versitygw

_HEAD = "| volume | what the pod did, or why it does not run |"
_DATA = Path("/data")
_SHOWN = 300
_TEAM = {"store": "checkpoints", "path": "team"}
_WRITES = "id -u; cut -c 1-40 /proc/self/uid_map; touch {0}/new-$$; ls -ln {0}"
_ASKS = "id -u; HOLDFAST_SOCKET=/data/pods.sock holdfast status --json | head -c 100"
_IS_MAPPED, _ANSWERS, _HAS_NO_USER = "65536", '"mountpoint"', "Permission denied"
_IS_REFUSED, _DOES_NOT_START = "can't be had in a user namespace", "invalid argument"
_VOLUMES = {
    "none": (None, "id -u; cut -c 1-40 /proc/self/uid_map", _IS_MAPPED),
    "the node's /run/holdfast/pods": (PodVolume.of_node("it", RUN / "pods", at=_DATA), _ASKS, _ANSWERS),
    "`socket: true`": (PodVolume.of_driver("it", _DATA, {"socket": "true"}), _ASKS, _ANSWERS),
    "the whole mount": (PodVolume.of_driver("it", _DATA, {}), _WRITES.format(f"{_DATA}/checkpoints"), _IS_REFUSED),
    "`store`, `path`": (
        PodVolume.of_driver("it", _DATA, {**_TEAM, "uid": "1000"}),
        _WRITES.format(_DATA),
        _IS_REFUSED,
    ),
    "`workdir`": (PodVolume.of_driver("it", _DATA, {"workdir": "executor/x"}), _WRITES.format(_DATA), _IS_REFUSED),
    "a claim": (PodVolume.of_claim("it", _DATA, "team"), _WRITES.format(_DATA), _DOES_NOT_START),
    "the node's mountpoint": (
        PodVolume.of_node("it", MOUNTPOINT, at=_DATA),
        _WRITES.format(f"{_DATA}/checkpoints"),
        _DOES_NOT_START,
    ),
    "the directory above it": (
        PodVolume.of_node("it", MOUNTPOINT.parent, at=_DATA, mountPropagation="HostToContainer"),
        _WRITES.format(f"{_DATA}/holdfast/checkpoints"),
        _HAS_NO_USER,
    ),
}


def main() -> int:
    """Try each kind of volume; return the exit status."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.kubernetes_users", description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    os.environ["PATH"] = f"{newer_containers()}:{os.environ['PATH']}"
    run_with_a_network_of_its_own()
    with (
        kubernetes_cluster(1, options.image.absolute(), options.directory) as cluster,
        serving_versitygw(cluster.directory) as server,
    ):
        node = cluster.kubectl.get("node", "node1")["status"]["nodeInfo"]
        print(f"Kubernetes {VERSION}, {node['containerRuntimeVersion']}, Linux {node['kernelVersion']}", file=sys.stderr)
        release = Release(cluster, server)
        release.install()
        release.wait_rolled_out()
        print(f"{_HEAD}\n|{'---|' * (_HEAD.count('|') - 1)}")
        cluster.kubectl.apply(claimed("team", _TEAM))
        wait_for_kubernetes(lambda: cluster.kubectl.get("pvc", "team")["status"].get("phase") == "Bound")
        others = 0
        for number, (name, (volume, words, expected)) in enumerate(_VOLUMES.items()):
            told = _tried(cluster.kubectl, f"pod-{number}", volume, words)
            others += expected not in told
            print(f"| {name} | {told} |", flush=True)
    return 1 if others else 0


def _tried(kubectl: Kubectl, name: str, volume: PodVolume | None, words: str) -> str:
    volumes = [volume] if volume else []
    try:
        kubectl.apply([application_pod(name, ["sh", "-c", f"exec 2>&1; {words}"], volumes, node="node1", hostUsers=False)])
    except KubectlError as problem:
        return " ".join(str(problem).split())[-_SHOWN:]
    wait_for_kubernetes(lambda: _has_ended(kubectl.get("pod", name)) or _refusal(kubectl, name) != "")
    told = kubectl.run("logs", name) if _has_ended(kubectl.get("pod", name)) else _refusal(kubectl, name)
    kubectl.delete("pod", name)
    return " ".join(told.split())[:_SHOWN]


def _has_ended(pod: Any) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _refusal(kubectl: Kubectl, name: str) -> str:
    """Return the reason for which kubelet can't start a pod's containers, or an empty text."""
    found = kubectl.get("events", f"--field-selector=involvedObject.name={name},type=Warning")["items"]
    reasons = ("Failed", "FailedCreatePodSandBox", "FailedMount")
    return next((str(event["message"])[-_SHOWN:] for event in found if event["reason"] in reasons), "")


if __name__ == "__main__":
    sys.exit(main())
