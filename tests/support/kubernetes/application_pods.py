"""Pods of applications, which have the node's programs and this checkout as volumes, and Holdfast's mount by any way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubernetes.images import APPLICATION_IMAGE
from tests.support.tools.cache import cache_directory

_CHECKOUT = Path(__file__).parents[3]
_PASSED_ON = ("PATH", "PYTHONPYCACHEPREFIX", "LANG")


@dataclass(frozen=True)
class PodVolume:
    """A volume of a pod: ``source`` as Kubernetes has it, and where it is in the pod's containers."""

    name: str
    source: Mapping[str, Any]
    at: Path
    how: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_node(cls, name: str, path: Path, *, at: Path | None = None, **how: Any) -> PodVolume:
        """A directory of the node."""
        return cls(name, {"hostPath": {"path": str(path), "type": "Directory"}}, at or path, how)

    @classmethod
    def of_driver(cls, name: str, at: Path, attributes: Mapping[str, str], **how: Any) -> PodVolume:
        """An inline volume of ``holdfast.csi``."""
        return cls(name, {"csi": {"driver": "holdfast.csi", "volumeAttributes": dict(attributes)}}, at, how)

    @classmethod
    def of_claim(cls, name: str, at: Path, claim: str) -> PodVolume:
        """A claim, as of ``claimed``."""
        return cls(name, {"persistentVolumeClaim": {"claimName": claim}}, at)

    @property
    def declared(self) -> dict[str, Any]:
        """The pod's declaration of it."""
        return {"name": self.name, **self.source}

    @property
    def mounted(self) -> dict[str, Any]:
        """The container's."""
        return {"name": self.name, "mountPath": str(self.at), **self.how}


def claimed(name: str, attributes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a persistent volume of ``holdfast.csi``, and the claim on it."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **common,
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": "default", "name": name},
        "csi": {"driver": "holdfast.csi", "volumeHandle": name, "volumeAttributes": dict(attributes)},
    }
    claim = {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim},
    ]


def programs() -> list[PodVolume]:
    """Return the volumes with the node's programs, the tests' Python and this checkout."""
    paths = {"usr": Path("/usr"), "cache": cache_directory(), "checkout": _CHECKOUT}
    return [PodVolume.of_node(name, path, readOnly=True) for name, path in paths.items()]


def programs_environment() -> dict[str, str]:
    """Return the variables with which these programs are found."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_CHECKOUT)]))
    return environment


def application_pod(
    name: str,
    command: Sequence[str],
    volumes: Sequence[PodVolume],
    *,
    node: str = "",
    environment: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a pod of one container, on ``node`` if that is named; ``spec`` has more of its fields."""
    every = [*programs(), *volumes]
    variables = {**programs_environment(), **(environment or {})}
    container = {
        "name": "it",
        "image": APPLICATION_IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": [volume.mounted for volume in every],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [container],
            "volumes": [volume.declared for volume in every],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


def restricted_pod(name: str, image: str, words: str) -> dict[str, Any]:
    """Return a pod as the profile ``restricted`` wants it: user 1000 runs a shell's ``words`` in a directory of a store."""
    attributes = {"store": "checkpoints", "path": name, "uid": "1000"}
    data = PodVolume.of_driver("data", Path("/data"), attributes)
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "workingDir": str(data.at),
        "command": ["sh", "-c", words],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [data.mounted],
    }
    spec = {
        "containers": [container],
        "volumes": [data.declared],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
