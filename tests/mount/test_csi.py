"""The driver for Kubernetes' volumes, over a live mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from holdfast.control.client import ControlClient, RefusedError
from holdfast.mount import mountpoint
from holdfast.mount.mountpoint import Life
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.kernel.id_mapping import id_mapped, user_namespace
from tests.support.kubernetes.driver import MOST_BYTES, CsiDriver, refusal
from tests.support.processes.memory import memory
from tests.support.tools.go_programs import BuildError, go_program

_SANITY = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0"

_OF_THE_MOUNT: dict[str, dict[str, str]] = {
    "all": {},
    "directory": {"store": "checkpoints", "path": "team"},
    "workdir": {"workdir": "executor/x"},
}


@pytest.fixture
def kubelet() -> Iterator[Path]:
    """A directory of kubelet's. Whatever is still bound in it is taken away at the end."""
    directory = Path(tempfile.mkdtemp(prefix="hf-kubelet-", dir="/var/tmp"))
    yield directory
    for mount in reversed(mountpoint.mounts()):
        if mount.mountpoint.startswith(f"{directory}/"):
            mountpoint.detach(mount.mountpoint)
    shutil.rmtree(directory)


def test_csi_sanity_finds_no_fault(node: Node, kubelet: Path) -> None:
    try:
        program = go_program("csi-sanity", _SANITY)
    except BuildError as problem:
        pytest.skip(str(problem))
    parameters = node.directory / "parameters.yaml"
    parameters.write_text("store: checkpoints\npath: volumes\n")
    with CsiDriver(node, kubelet).running() as driver:
        places = {name: str(node.directory / "sanity" / name) for name in ("mountdir", "stagingdir")}
        (node.directory / "sanity").mkdir()
        words = [f"-csi.{name}={path}" for name, path in places.items()]
        command = [str(program), f"-csi.endpoint=unix://{driver.socket}", f"-csi.testvolumeparameters={parameters}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-5000:]
    assert list(node.checkpoints.glob("volumes/*")), "it has worked on the mount"


def test_it_takes_some_40_mb_without_openssl_which_would_be_an_eighth_more(node: Node, kubelet: Path) -> None:
    with CsiDriver(node, kubelet).running():  # it may have to compile itself, which takes 3 MB, and no installed one does
        pass
    with CsiDriver(node, kubelet).running() as driver:
        driver.publish("job", {"workdir": "executor/x"})
        assert memory(driver.pid).resident < MOST_BYTES, memory(driver.pid)
        loaded = Path(f"/proc/{driver.pid}/maps").read_text()
        assert ("cygrpc" in loaded, "libcrypto" in loaded, "libssl" in loaded) == (True, False, False)
        driver.unpublish("job")


def test_a_volume_is_a_directory_of_the_mount(make_node: NodeFactory, kubelet: Path) -> None:
    pods_socket = kubelet / "run/pods.sock"
    node = make_node(control__pods_socket=pods_socket).start()
    with CsiDriver(node, kubelet).running("--pods-socket", str(pods_socket)) as driver:
        socket = driver.publish("socket", {"socket": "true"}) / "pods.sock"
        with ControlClient(socket) as pod:
            assert pod.status().is_public
        driver.unpublish("socket")
        registry = driver.kubelet / "plugins_registry/holdfast.csi-reg.sock"
        about = driver.call("GetInfo", registry)
        assert (about.type, about.name, about.endpoint) == ("CSIPlugin", "holdfast.csi", str(driver.socket))
        assert driver.call("NodeGetInfo").accessible_topology.segments == {"holdfast.io/node": "a-node"}
        job = driver.publish("job", {"store": "checkpoints", "path": "team/job", "uid": "1000", "gid": "1001"})
        (job / "offsets").write_text("state")
        assert (node.checkpoints / "team/job/offsets").read_text() == "state"
        assert [(node.checkpoints / name).stat().st_uid for name in ("team", "team/job")] == [1000, 1000]
        whole = driver.publish("all", {})
        assert os.path.samestat((whole / "checkpoints").stat(), node.checkpoints.stat())
        read_only = driver.publish("look", {"store": "checkpoints", "path": "team", "readOnly": "true"})
        with pytest.raises(OSError, match="Read-only"):
            (read_only / "new").touch()
        assert (read_only / "job/offsets").read_text() == "state"
        usage = driver.call("NodeGetVolumeStats", volume_id="csi-pod-1-job", volume_path=str(job)).usage
        assert usage[0].total == os.statvfs(node.mountpoint).f_blocks * os.statvfs(node.mountpoint).f_frsize
        for attributes, said in (
            ({"store": "checkpoints", "path": "a/../../etc"}, "without '..'"),
            ({"store": "checkpoints", "path": "/etc"}, "must lead down"),
            ({"store": "checkpoints", "path": "team/job/offsets"}, "no directory"),
            ({"store": "work"}, "no store 'work'"),
            ({"store": "missing"}, "no store 'missing'"),
            ({"store": "../checkpoints"}, "no name of a store"),
            ({"store": "checkpoints", "socket": "true"}, "socket stands without store"),
            ({"store": "checkpoints", "workdir": "driver/x"}, "stands without store and path"),
            ({"workdir": "driver/../x"}, "workdir is ROLE/ID"),
            ({"slots": "true"}, "slots are those of a workdir"),
            ({"stor": "checkpoints"}, "there is no 'stor'"),
            ({"store": "checkpoints", "readOnly": "yes"}, "readOnly is 'true' or 'false'"),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                driver.publish("bad", attributes)
            status, message = refusal(refused.value)
            assert (status, said in message) == ("INVALID_ARGUMENT", True), message
            driver.unpublish("bad")
        with pytest.raises(grpc.RpcError) as refused:
            driver.publish("job", {"store": "checkpoints", "path": "another"})
        assert refusal(refused.value)[0] == "ALREADY_EXISTS"
    with CsiDriver(node, kubelet).running() as driver:  # another driver knows what the first has bound
        driver.publish("job", {"store": "checkpoints", "path": "team/job", "uid": "1000", "gid": "1001"})
        assert len([mount for mount in mountpoint.mounts() if mount.mountpoint == str(job)]) == 1
        for name in ("job", "all", "look", "job"):
            driver.unpublish(name)
            assert not driver.target(name).exists()
        assert list((driver.kubelet / "plugins/holdfast.csi/volumes").iterdir()) == []
    assert (node.checkpoints / "team/job/offsets").read_text() == "state"


def test_of_all_volumes_a_pod_in_a_user_namespace_can_have_the_socket_alone(make_node: NodeFactory, kubelet: Path) -> None:
    pods_socket = kubelet / "run/pods.sock"
    node = make_node(control__pods_socket=pods_socket).start()
    with CsiDriver(node, kubelet).running("--pods-socket", str(pods_socket)) as driver, user_namespace() as users:
        os.close(id_mapped(driver.publish("socket", {"socket": "true"}), users))
        for name, attributes in _OF_THE_MOUNT.items():
            with pytest.raises(OSError, match="Invalid argument"):
                id_mapped(driver.publish(name, attributes), users)
        for name in ("socket", *_OF_THE_MOUNT):
            driver.unpublish(name)


def test_a_pod_waits_for_the_mount_and_gets_the_next_one_after_a_takeover_that_failed(
    make_node: NodeFactory, kubelet: Path
) -> None:
    node = make_node()
    with CsiDriver(node, kubelet).running() as driver:
        with pytest.raises(grpc.RpcError) as refused:
            driver.publish("job", {"store": "checkpoints"})
        assert refusal(refused.value)[0] == "UNAVAILABLE"
        assert not driver.call("Probe").ready.value
        node.start()
        assert driver.call("Probe").ready.value
        job = driver.publish("job", {"store": "checkpoints", "readOnly": "true"})
        (node.checkpoints / "before").write_text("state")
        assert (job / "before").read_text() == "state"
        node.kill()
        assert mountpoint.life(str(job)) is Life.DEAD
        node.start()
        wait_until(lambda: _is_of(node, job))
        assert (job / "before").read_text() == "state"
        with pytest.raises(OSError, match="Read-only"):
            (job / "new").touch()
        driver.unpublish("job")


def test_a_volume_holds_a_working_directory_until_its_pod_is_gone(node: Node, kubelet: Path) -> None:
    slots = {"workdir": "executor/app", "slots": "true", "uid": "1000"}
    with CsiDriver(node, kubelet).running() as driver:
        first, second = (driver.publish("local", slots, pod) for pod in ("pod-1", "pod-2"))
        assert driver.publish("local", slots, "pod-1") == first
        assert _held(node) == {"executor_app-0": "pod jobs/the-pod-1", "executor_app-1": "pod jobs/the-pod-2"}
        (first / "localState/state").write_text("of the first")
        assert (node.mountpoint / "work/executor_app-0/localState/state").stat().st_ino
        assert ((first / "tmp").stat().st_uid, (second / "tmp").stat().st_uid) == (1000, 1000)
        with node.client() as client, pytest.raises(RefusedError, match="held by pod jobs/the-pod-1 since"):
            client.acquire("executor", "app-0", os.getpid())
        with pytest.raises(grpc.RpcError) as refused:
            driver.publish("another", {"workdir": "executor/app-0"}, "pod-3")
        assert refusal(refused.value)[0] == "FAILED_PRECONDITION"
    node.kill()
    node.start()  # what volumes hold is held over restarts of both
    with CsiDriver(node, kubelet).running() as driver:
        assert _held(node) == {"executor_app-0": "pod jobs/the-pod-1", "executor_app-1": "pod jobs/the-pod-2"}
        driver.unpublish("local", "pod-1")
        assert _held(node) == {"executor_app-1": "pod jobs/the-pod-2"}
        again = driver.publish("local", slots, "pod-4")
        assert (again / "localState/state").read_text() == "of the first", "the first free slot is found again"
        while mountpoint.mounted_on(str(driver.target("local", "pod-2"))) is not None:  # the new one lies on the dead one
            mountpoint.detach(str(driver.target("local", "pod-2")))
        shutil.rmtree(kubelet / "pods/pod-2")  # as when a node is reset
        driver.publish("all", {}, "pod-5")  # a change of mounts wakes the driver
        wait_until(lambda: _held(node) == {"executor_app-0": "pod jobs/the-pod-4"})
        driver.unpublish("local", "pod-4")
        assert _held(node) == {}


def _held(node: Node) -> dict[str, str | None]:
    with node.client() as client:
        return {Path(info.path).name: info.holder for info in client.workdirs() if info.holder}


def _is_of(node: Node, target: Path) -> bool:
    """Say whether the topmost mount of a target is the node's present one."""
    at = [mountpoint.mounted_on(str(path)) for path in (node.mountpoint, target)]
    return all(at) and len({mount.device for mount in at if mount is not None}) == 1
