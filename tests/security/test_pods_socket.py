"""The socket for pods: whoever comes by it, root too, gets what is its own, and paths as it has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.control.client import ControlClient, RefusedError
from tests.conftest import NodeFactory

_ACQUIRE = """
import json, os, sys
from holdfast.control.client import ControlClient
with ControlClient(sys.argv[1]) as client:
    held = client.acquire("worker", sys.argv[2], os.getpid())
    print(json.dumps([held.path, client.holdings(sys.argv[3] + "/checkpoints/q", all_nodes=True).nodes[0].node]))
    sys.stdin.read()
"""


def test_root_of_a_pod_is_a_user_like_any_other(
    make_node: NodeFactory, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = workspace / "pods/pods.sock"
    node = make_node(control__pods_socket=socket, holdings__node="a-node").start()
    with node.client() as operator:
        operator.acquire("worker", "of-another", os.getpid(), 1000, 1000)
    with ControlClient(socket) as pod:
        assert pod.status().is_public
        for forbidden in (
            pod.restart,
            pod.reload,
            lambda: pod.evict(str(node.checkpoints)).__next__(),
            pod.metrics,
            pod.batches,
            pod.holdings,
            lambda: pod.holdings(str(node.checkpoints)),
            lambda: pod.release("worker", "of-another"),
            lambda: pod.acquire("worker", "mine", os.getpid()),
            lambda: pod.acquire("worker", "mine", os.getpid(), 1000, 1000),
            lambda: pod.acquire_for_volume("worker", "mine", "pod/volume", "jobs/pod", (0, 0)),
        ):
            with pytest.raises(RefusedError) as refused:
                forbidden()
            assert refused.value.failure.code == "withheld", refused.value
        assert [Path(info.path).name for info in pod.workdirs()] == []
        node.checkpoints.chmod(0o700)
        os.chown(node.checkpoints, 1000, 1000)
        with pytest.raises(RefusedError, match="may search"):
            pod.holdings(f"{node.checkpoints}/q")
        os.chown(node.checkpoints, 0, 0)
    seen_at = "/pod/holdfast"
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, "-c", _ACQUIRE, str(socket), "mine", seen_at]
    environment = {**os.environ, "HOLDFAST_MOUNT": seen_at}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as in_pod:
        assert in_pod.stdout is not None
        assert json.loads(in_pod.stdout.readline()) == [f"{seen_at}/work/worker_mine", "a-node"]
        monkeypatch.setenv("HOLDFAST_MOUNT", seen_at)
        with ControlClient(socket) as pod:
            assert pod.status().mountpoint == seen_at
            assert [info.path for info in pod.workdirs()] == [f"{seen_at}/work/worker_mine"]
        monkeypatch.setenv("HOLDFAST_MOUNT", "../elsewhere")
        with ControlClient(socket) as pod, pytest.raises(RefusedError, match="is not the path of a mount"):
            pod.status()
        monkeypatch.delenv("HOLDFAST_MOUNT")
        assert (node.mountpoint / "work/worker_mine").stat().st_uid == 0
        with node.client() as operator:
            assert {Path(info.path).parent for info in operator.workdirs()} == {node.mountpoint / "work"}
        in_pod.communicate()
