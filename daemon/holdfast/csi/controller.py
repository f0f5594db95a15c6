"""The driver's identity, and its controller: a volume that it "makes" is a name for a directory in a store.

Deleting the volume removes that name alone: what pods have written stays in the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.csi.serving import CallError, Calls, invalid
from holdfast.csi.stubs import csi as messages
from holdfast.csi.volumes import wanted
from holdfast.errors import MountpointError
from holdfast.system.whole_file import write_whole

NAME = "holdfast.csi"
_LONGEST_ID = 128


class Identity:
    """Says who the driver is, and by ``answering_mount`` whether it is ready."""

    def __init__(self, answering_mount: Callable[[], object]) -> None:
        self._answering_mount = answering_mount
        self.calls: Calls = {
            "GetPluginInfo": self._info,
            "GetPluginCapabilities": self._capabilities,
            "Probe": self._probe,
        }

    def _info(self, _: Any) -> Any:
        return messages.GetPluginInfoResponse(name=NAME, vendor_version=holdfast.__version__)

    def _capabilities(self, _: Any) -> Any:
        kind = messages.PluginCapability.Service
        services = (kind.CONTROLLER_SERVICE, kind.VOLUME_ACCESSIBILITY_CONSTRAINTS)
        return messages.GetPluginCapabilitiesResponse(
            capabilities=[messages.PluginCapability(service=kind(type=each)) for each in services]
        )

    def _probe(self, _: Any) -> Any:
        try:
            self._answering_mount()
        except MountpointError:
            return messages.ProbeResponse(ready={"value": False})
        return messages.ProbeResponse(ready={"value": True})


class _Reference(msgspec.Struct, frozen=True):
    size_bytes: int
    attributes: dict[str, str]


class Controller:
    """Keeps the names in ``directory``; each is also the volume's id."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.calls: Calls = {
            "ControllerGetCapabilities": self._capabilities,
            "CreateVolume": self._create,
            "DeleteVolume": self._delete,
            "ValidateVolumeCapabilities": self._validate,
        }

    def _capabilities(self, _: Any) -> Any:
        kind = messages.ControllerServiceCapability.RPC
        return messages.ControllerGetCapabilitiesResponse(
            capabilities=[messages.ControllerServiceCapability(rpc=kind(type=kind.CREATE_DELETE_VOLUME))]
        )

    def _create(self, asked: Any) -> Any:
        if not asked.name or not asked.volume_capabilities:
            raise invalid("the request lacks name or volume_capabilities")
        if len(asked.name) > _LONGEST_ID or "/" in asked.name or asked.name in (".", ".."):
            raise invalid(f"a volume can't be called {asked.name!r}")
        if any(capability.HasField("block") for capability in asked.volume_capabilities):
            raise invalid("a volume of Holdfast is a file system: volumeMode Block is not possible")
        parameters = dict(asked.parameters)
        if not parameters.get("store"):
            raise invalid("the StorageClass names no store: parameters.store")
        path = "/".join(part for part in (parameters.get("path", ""), asked.name) if part)
        attributes = {**parameters, "path": path}
        wanted(attributes, read_only=False)  # refuses now what a pod would wait for in vain
        new = _Reference(asked.capacity_range.required_bytes, attributes)
        known = self._get(asked.name)
        if known not in (None, new):
            raise CallError("ALREADY_EXISTS", f"there is a volume {asked.name} of another size, or for another directory")
        write_whole(self._file(asked.name), [msgspec.json.encode(new)])
        volume = messages.Volume(volume_id=asked.name, capacity_bytes=new.size_bytes, volume_context=new.attributes)
        return messages.CreateVolumeResponse(volume=volume)

    def _delete(self, asked: Any) -> Any:
        if not asked.volume_id:
            raise invalid("the request lacks volume_id")
        self._file(asked.volume_id).unlink(missing_ok=True)
        return messages.DeleteVolumeResponse()

    def _validate(self, asked: Any) -> Any:
        if not asked.volume_id or not asked.volume_capabilities:
            raise invalid("the request lacks volume_id or volume_capabilities")
        if self._get(asked.volume_id) is None:
            raise CallError("NOT_FOUND", f"there is no volume {asked.volume_id}")
        confirmed = {"volume_capabilities": asked.volume_capabilities, "volume_context": asked.volume_context}
        return messages.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    def _get(self, name: str) -> _Reference | None:
        try:
            return msgspec.json.decode(self._file(name).read_bytes(), type=_Reference)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _file(self, name: str) -> Path:
        return self._directory / (hashlib.blake2b(name.encode(), digest_size=16).hexdigest() + ".json")
