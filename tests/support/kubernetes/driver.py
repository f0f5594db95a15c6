"""``holdfast-csi`` in a process of its own, and kubelet's side of its socket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message_factory import GetMessageClass

from holdfast.csi.stubs import csi as messages
from holdfast.csi.stubs import registration
from tests.support.daemons.node import Node, wait_until

MOST_BYTES = 40_000_000 if sys.version_info < (3, 13) else 42_000_000
"""The most memory that the driver may have. Python 3.13 takes 1.4 MB more."""
_ANSWER_SECONDS = 60.0
_SERVICES = {
    method.name: method
    for module in (messages, registration)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class CsiCalls:
    """Calls of the driver, as kubelet makes them, whose directory is ``kubelet``: a path short enough for sockets."""

    def __init__(self, kubelet: Path) -> None:
        self.kubelet = kubelet
        self.socket = kubelet / "plugins/holdfast.csi/csi.sock"
        (kubelet / "plugins_registry").mkdir(parents=True, exist_ok=True)

    def answers(self) -> bool:
        """Say whether there is a driver."""
        try:
            self.call("Probe")
        except grpc.RpcError:
            return False
        return True

    def target(self, name: str, pod: str = "pod-1") -> Path:
        """Return the place for a pod's volume."""
        return self.kubelet / f"pods/{pod}/volumes/kubernetes.io~csi/{name}/mount"

    def publish(self, name: str, attributes: Mapping[str, str], pod: str = "pod-1") -> Path:
        """Let a volume be bound for a pod, as an inline volume is; return the target. Raises ``grpc.RpcError``."""
        target = self.target(name, pod)
        about = {"uid": pod, "name": f"the-{pod}", "namespace": "jobs"}
        told = {f"csi.storage.k8s.io/pod.{key}": value for key, value in about.items()}
        mode = messages.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
        self.call(
            "NodePublishVolume",
            volume_id=f"csi-{pod}-{name}",
            target_path=str(target),
            volume_capability={"mount": {}, "access_mode": {"mode": mode}},
            volume_context={**attributes, **told},
        )
        return target

    def unpublish(self, name: str, pod: str = "pod-1") -> None:
        """Let a volume be taken away."""
        self.call("NodeUnpublishVolume", volume_id=f"csi-{pod}-{name}", target_path=str(self.target(name, pod)))

    def call(self, method: str, socket: Path | None = None, **fields: Any) -> Any:
        """Call a method as kubelet does. Raises ``grpc.RpcError``."""
        described = _SERVICES[method]
        with grpc.insecure_channel(f"unix:{socket or self.socket}") as channel:
            asking = channel.unary_unary(
                f"/{described.containing_service.full_name}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=GetMessageClass(described.output_type).FromString,
            )
            return asking(GetMessageClass(described.input_type)(**fields), timeout=_ANSWER_SECONDS)


class CsiDriver(CsiCalls):
    """The driver of ``node``, as a process of the test's."""

    def __init__(self, node: Node, kubelet: Path) -> None:
        super().__init__(kubelet)
        self.log = node.directory / "csi.log"
        self.pid = 0
        self._mountpoint, self._control = node.mountpoint, node.socket

    @contextmanager
    def running(self, *options: str) -> Iterator[CsiDriver]:
        """Run it until the block ends."""
        command = [sys.executable, "-c", "from holdfast.csi import run; run()", "--node", "a-node"]
        command += ["--mountpoint", str(self._mountpoint), "--kubelet", str(self.kubelet)]
        command += ["--socket", str(self._control), *options]
        with self.log.open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            self.pid = process.pid
            try:
                wait_until(lambda: process.poll() is not None or self.answers())
                assert process.poll() is None, self.log.read_text()
                yield self
            finally:
                process.terminate()
                assert process.wait(_ANSWER_SECONDS) == 0, self.log.read_text()


def refusal(problem: BaseException) -> tuple[str, str]:
    """Return status and message of an answer that is an error."""
    error = cast(grpc.Call, problem)
    return error.code().name, error.details() or ""
