"""Kubelet's side of a container runtime: pods by the Container Runtime Interface (CRI), version 1.

Of each message only the fields that are used here are described, by their numbers in Kubernetes' ``api.proto``; the others
keep their defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_SERVICE = "runtime.v1.RuntimeService"
_PACKAGE = "fields.in.use"
_ANSWER_SECONDS = 60.0
_MESSAGES = {
    "Empty": "",
    "Text": "key=1:string value=2:string",
    "Number": "value=1:int64",
    "Metadata": "name=1:string uid=2:string namespace=3:string",
    "Namespaces": "network=1:int32 pid=2:int32 ipc=3:int32",
    "SandboxSecurity": "namespace_options=1:Namespaces privileged=6:bool",
    "SandboxLinux": "cgroup_parent=1:string security_context=2:SandboxSecurity",
    "Sandbox": "metadata=1:Metadata log_directory=3:string linux=8:SandboxLinux",
    "Image": "image=1:string",
    "Mount": "container_path=1:string host_path=2:string readonly=3:bool propagation=5:int32",
    "ContainerMetadata": "name=1:string attempt=2:int32",
    "Capabilities": "drop_capabilities=2:*string",
    "Security": (
        "capabilities=1:Capabilities privileged=2:bool namespace_options=3:Namespaces run_as_user=5:Number "
        "run_as_group=12:Number readonly_rootfs=7:bool no_new_privs=11:bool"
    ),
    "ContainerLinux": "security_context=2:Security",
    "Container": (
        "metadata=1:ContainerMetadata image=2:Image command=3:*string envs=6:*Text mounts=7:*Mount log_path=11:string "
        "linux=15:ContainerLinux"
    ),
    "RunPodSandbox": "config=1:Sandbox",
    "PodSandboxId": "pod_sandbox_id=1:string",
    "CreateContainer": "pod_sandbox_id=1:string config=2:Container sandbox_config=3:Sandbox",
    "ContainerId": "container_id=1:string",
    "StopContainer": "container_id=1:string timeout=2:int64",
    "ExecSync": "container_id=1:string cmd=2:*string timeout=3:int64",
    "Executed": "stdout=1:bytes stderr=2:bytes exit_code=3:int32",
    "ContainerStatus": "container_id=1:string verbose=2:bool",
    "State": "state=3:int32 exit_code=7:int32",
    "Told": "status=1:State info=2:*Text",
}
_CALLS = {
    "RunPodSandbox": ("RunPodSandbox", "PodSandboxId"),
    "StopPodSandbox": ("PodSandboxId", "Empty"),
    "RemovePodSandbox": ("PodSandboxId", "Empty"),
    "CreateContainer": ("CreateContainer", "ContainerId"),
    "StartContainer": ("ContainerId", "Empty"),
    "StopContainer": ("StopContainer", "Empty"),
    "ExecSync": ("ExecSync", "Executed"),
    "ContainerStatus": ("ContainerStatus", "Told"),
}
_OWN, _NODES = 1, 2
_RUNNING = 1


def _described() -> DescriptorPool:
    file = FileDescriptorProto(name="fields.proto", package=_PACKAGE, syntax="proto3")
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for word in text.split():
            field_name, _, rest = word.partition("=")
            number, _, kind = rest.partition(":")
            label = FieldDescriptorProto.LABEL_REPEATED if kind[0] == "*" else FieldDescriptorProto.LABEL_OPTIONAL
            made = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.removeprefix("*")
            if kind in _MESSAGES:
                made.type_name = f".{_PACKAGE}.{kind}"
                made.type = FieldDescriptorProto.TYPE_MESSAGE
            else:
                made.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _described()


class Propagation(IntEnum):
    """Which mounts pass between the node and a container that has a volume."""

    NONE = 0
    HOST_TO_CONTAINER = 1
    BIDIRECTIONAL = 2


@dataclass(frozen=True)
class Volume:
    """A directory of the node, at the path ``at`` in the container; the same one if that is empty."""

    path: Path
    propagation: Propagation = Propagation.NONE
    read_only: bool = False
    at: str = ""


@dataclass(frozen=True)
class PodSpec:
    """A pod of one container, in the node's network. ``image`` is the runtime's own if it is not named."""

    name: str
    command: Sequence[str]
    volumes: Sequence[Volume]
    environment: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    host_pid: bool = False
    restricted: bool = False
    """Without capabilities, new rights and a root directory that can be written to."""
    uid: int = 0
    image: str = ""


class Runtime:
    """The runtime behind ``socket``, with the ``image`` that pods have by default, and their cgroups below ``cgroup``."""

    def __init__(self, socket: Path, image: str, cgroup: str, logs: Path) -> None:
        self._socket = socket
        self.image = image
        self.cgroup = cgroup
        self.logs = logs

    def call(self, method: str, **fields: Any) -> Any:
        """Call a method. Raises ``grpc.RpcError``."""
        request, reply = (GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _CALLS[method])
        with grpc.insecure_channel(f"unix:{self._socket}") as channel:
            asking = channel.unary_unary(
                f"/{_SERVICE}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=reply.FromString,
            )
            return asking(request(**fields), timeout=_ANSWER_SECONDS)


class Pod:
    """A pod that ``runtime`` runs."""

    def __init__(self, runtime: Runtime, spec: PodSpec) -> None:
        self.spec = spec
        self._runtime = runtime
        self._attempt = 0
        self.sandbox = runtime.call("RunPodSandbox", config=self._sandbox()).pod_sandbox_id
        self.container = self._started()

    def restart_container(self) -> None:
        """Start a new container in the pod, as kubelet does when the one before has ended."""
        self._attempt += 1
        self.container = self._started()

    def stop(self, grace_seconds: int) -> None:
        """End the container by SIGTERM, and by SIGKILL when it takes longer; 0: by SIGKILL at once."""
        self._runtime.call("StopContainer", container_id=self.container, timeout=grace_seconds)

    def remove(self) -> None:
        """Take the pod away, whatever still runs in it."""
        self._runtime.call("StopPodSandbox", pod_sandbox_id=self.sandbox)
        self._runtime.call("RemovePodSandbox", pod_sandbox_id=self.sandbox)

    def run(self, *command: str) -> tuple[int, str]:
        """Run a command in the container; return its exit status and what it printed."""
        done = self._runtime.call("ExecSync", container_id=self.container, cmd=command, timeout=int(_ANSWER_SECONDS))
        return done.exit_code, (done.stdout + done.stderr).decode(errors="replace")

    @property
    def runs(self) -> bool:
        """True while the container runs."""
        return bool(self._told().status.state == _RUNNING)

    @property
    def exit_code(self) -> int:
        """The exit status of a container that has ended."""
        return int(self._told().status.exit_code)

    @property
    def first_pid(self) -> int:
        """The container's first process, as the node calls it."""
        info = {text.key: text.value for text in self._told(verbose=True).info}
        return int(json.loads(info["info"])["pid"])

    @property
    def output(self) -> list[str]:
        """The lines that the container has written to its standard output; the last one may not be whole yet."""
        fields = (line.split(" ", 3) for line in self.log.splitlines())  # time, stream, whole or part, text
        return [text for _, stream, _, text in fields if stream == "stdout"]

    @property
    def log(self) -> str:
        """The container's output, with the runtime's time and stream before each line."""
        return (self._runtime.logs / self.spec.name / self._log_name).read_text()

    @property
    def _log_name(self) -> str:
        return f"{self._attempt}.log"

    def _told(self, *, verbose: bool = False) -> Any:
        return self._runtime.call("ContainerStatus", container_id=self.container, verbose=verbose)

    def _namespaces(self) -> dict[str, int]:
        return {"network": _NODES, "pid": _NODES if self.spec.host_pid else _OWN, "ipc": 0}

    def _sandbox(self) -> dict[str, Any]:
        logs = self._runtime.logs / self.spec.name
        logs.mkdir(parents=True, exist_ok=True)
        security = {"namespace_options": self._namespaces(), "privileged": self.spec.privileged}
        return {
            "metadata": {"name": self.spec.name, "uid": f"uid-of-{self.spec.name}", "namespace": "tests"},
            "log_directory": str(logs),
            "linux": {"cgroup_parent": self._runtime.cgroup, "security_context": security},
        }

    def _container(self) -> dict[str, Any]:
        spec = self.spec
        security: dict[str, Any] = {
            "privileged": spec.privileged,
            "namespace_options": self._namespaces(),
            "run_as_user": {"value": spec.uid},
            "run_as_group": {"value": spec.uid},
            "readonly_rootfs": spec.restricted,
            "no_new_privs": spec.restricted,
            "capabilities": {"drop_capabilities": ["ALL"] if spec.restricted else []},
        }
        return {
            "metadata": {"name": spec.name, "attempt": self._attempt},
            "image": {"image": spec.image or self._runtime.image},
            "command": list(spec.command),
            "envs": [{"key": key, "value": value} for key, value in spec.environment.items()],
            "mounts": [
                {
                    "host_path": str(volume.path),
                    "container_path": volume.at or str(volume.path),
                    "readonly": volume.read_only,
                    "propagation": int(volume.propagation),
                }
                for volume in spec.volumes
            ],
            "log_path": self._log_name,
            "linux": {"security_context": security},
        }

    def _started(self) -> str:
        asked = {"pod_sandbox_id": self.sandbox, "config": self._container(), "sandbox_config": self._sandbox()}
        container = self._runtime.call("CreateContainer", **asked).container_id
        self._runtime.call("StartContainer", container_id=container)
        return str(container)
