"""The node's service: volumes bound to the targets that kubelet names, and taken away again."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.control.client import ControlClient
from holdfast.csi.binding import bind
from holdfast.csi.leases import Leases
from holdfast.csi.serving import CallError, Calls, invalid
from holdfast.csi.stubs import csi as messages
from holdfast.csi.volumes import Records, Volume, pod_of, wanted
from holdfast.errors import NotMountedError
from holdfast.mount import mountpoint as mounts
from holdfast.mount.mountpoint import Life, Mount

TOPOLOGY = "holdfast.io/node"
_READER_ONLY = (
    messages.VolumeCapability.AccessMode.SINGLE_NODE_READER_ONLY,
    messages.VolumeCapability.AccessMode.MULTI_NODE_READER_ONLY,
)
_TURN_SECONDS = 10.0
_log = logging.getLogger("holdfast.csi")


class Node:
    """Binds directories of the mount at ``mountpoint``. ``name`` is the node's in Kubernetes; the sockets: the daemon's."""

    def __init__(
        self, mountpoint: str, name: str, records: Records, leases: Leases, socket: Path, pods_socket: Path
    ) -> None:
        self._pods_socket = pods_socket
        self._mountpoint = mountpoint
        self._socket = socket
        self._leases = leases
        self._name = name
        self._records = records
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self.calls: Calls = {
            "NodeGetCapabilities": self._capabilities,
            "NodeGetInfo": self._info,
            "NodePublishVolume": self._publish,
            "NodeUnpublishVolume": self._unpublish,
            "NodeGetVolumeStats": self._stats,
        }

    def answering_mount(self) -> Mount:
        """Return the mount, whose daemon has just answered. Raises ``MountpointError``."""
        mount = mounts.mounted_on(self._mountpoint)
        if mount is None or not mount.is_holdfast:
            raise NotMountedError(f"nothing is mounted at {self._mountpoint} yet")
        if mounts.life(self._mountpoint) is not Life.ALIVE:
            raise NotMountedError(f"the mount at {self._mountpoint} does not answer yet")
        return mount

    def rebind(self) -> None:
        """Bind volumes again that are of a mount which is gone, as after a takeover that failed."""
        mount = mounts.mounted_on(self._mountpoint)
        if mount is None or not mount.is_holdfast or not any(_is_stale(volume, mount) for volume in self._records.all()):
            return
        mount = self.answering_mount()
        for volume in self._records.all():
            with suppress(CallError), self._alone(volume.target):
                if self._records.get(volume.target) == volume and _is_stale(volume, mount):
                    reaches_containers = _cover(mount, volume)
                    _log.warning(
                        "%s: its mount was gone, and it is bound to the new one; containers that have begun before see %s",
                        volume.name,
                        "that if their volumeMounts have mountPropagation: HostToContainer"
                        if reaches_containers
                        else "the old one",
                    )

    def _capabilities(self, _: Any) -> Any:
        kind = messages.NodeServiceCapability.RPC
        return messages.NodeGetCapabilitiesResponse(
            capabilities=[messages.NodeServiceCapability(rpc=kind(type=kind.GET_VOLUME_STATS))]
        )

    def _info(self, _: Any) -> Any:
        topology = messages.Topology(segments={TOPOLOGY: self._name})
        return messages.NodeGetInfoResponse(node_id=self._name, accessible_topology=topology)

    def _publish(self, asked: Any) -> Any:
        volume = _asked_for(asked)
        with self._alone(volume.target):
            known = self._records.get(volume.target)
            if known is not None and (known.id, known.wanted) != (volume.id, volume.wanted):
                raise CallError("ALREADY_EXISTS", f"{known.name} is bound there, or was asked for in another way")
            mount = self.answering_mount()
            if known is not None and not _is_stale(volume, mount) and mounts.mounted_on(volume.target) is not None:
                return messages.NodePublishVolumeResponse()
            _clear(volume.target)
            Path(volume.target).mkdir(parents=True, exist_ok=True)
            volume = replace(volume, path=self._path_of(volume))
            self._records.put(volume)
            bind(self._socket_directory() if volume.wanted.socket else mount, volume)
        _log.info("%s: %s is bound to %s", volume.name, volume.path or "the mount", volume.target)
        return messages.NodePublishVolumeResponse()

    def _socket_directory(self) -> Mount:
        """Return the directory of ``pods.sock`` as if it were a mount. Raises ``CallError``."""
        directory = self._pods_socket.parent
        if not self._pods_socket.is_socket():
            raise CallError("FAILED_PRECONDITION", f"there is no {self._pods_socket}: set the daemon's control.pods_socket")
        return Mount(str(directory), "", directory.stat().st_dev, "", 0, 0)

    def sweep(self) -> None:
        """End what is of pods that kubelet does not have any more. Raises ``HoldfastError`` and ``OSError``."""
        for volume in self._records.all():
            if volume.pod_uid and not self._leases.has(volume.pod_uid) and mounts.mounted_on(volume.target) is None:
                self._records.discard(volume.target)
        self._leases.sweep()

    def _path_of(self, volume: Volume) -> str:
        """Return what to bind, below the mount; acquire it if it is a working directory.

        Raises ``CallError`` if the daemon has no such store: beside stores, the mount has the bases of working directories.
        """
        if volume.wanted.workdir:
            return self._leases.acquire(volume)
        store = volume.wanted.path.partition("/")[0]
        with ControlClient(self._socket) as daemon:
            if store and store not in daemon.status().remotes:
                raise invalid(f"the mount has no store {store!r}")
        return volume.wanted.path

    def _unpublish(self, asked: Any) -> Any:
        if not asked.volume_id or not asked.target_path:
            raise invalid("the request lacks volume_id or target_path")
        with self._alone(asked.target_path):
            known = self._records.get(asked.target_path)
            _clear(asked.target_path)
            with suppress(FileNotFoundError):
                os.rmdir(asked.target_path)
            if known is not None and known.wanted.workdir:
                self._leases.release(known)
            self._records.discard(asked.target_path)
        return messages.NodeUnpublishVolumeResponse()

    def _stats(self, asked: Any) -> Any:
        if not asked.volume_id or not asked.volume_path:
            raise invalid("the request lacks volume_id or volume_path")
        if mounts.mounted_on(asked.volume_path) is None:
            raise CallError("NOT_FOUND", f"nothing is bound to {asked.volume_path}")
        if mounts.life(asked.volume_path) is not Life.ALIVE:
            problem = "the volume's mount does not answer"
            return messages.NodeGetVolumeStatsResponse(volume_condition={"abnormal": True, "message": problem})
        found, usage = os.statvfs(asked.volume_path), messages.VolumeUsage
        size = found.f_frsize
        total, free, used = found.f_blocks * size, found.f_bavail * size, (found.f_blocks - found.f_bfree) * size
        return messages.NodeGetVolumeStatsResponse(
            usage=[
                usage(unit=usage.BYTES, total=total, available=free, used=used),
                usage(unit=usage.INODES, total=found.f_files, available=found.f_favail, used=found.f_files - found.f_ffree),
            ]
        )

    @contextmanager
    def _alone(self, target: str) -> Iterator[None]:
        """Let one request at a time work on a target. Raises ``CallError`` if another one takes long."""
        with self._changed:
            if not self._changed.wait_for(lambda: target not in self._busy, _TURN_SECONDS):
                raise CallError("ABORTED", f"another request about {target} is under way")
            self._busy.add(target)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(target)
                self._changed.notify_all()


def _asked_for(asked: Any) -> Volume:
    """Return the volume of a request to publish it. Raises ``CallError``."""
    capability = asked.volume_capability
    if not asked.volume_id or not asked.target_path:
        raise invalid("the request lacks volume_id or target_path")
    if not asked.HasField("volume_capability"):
        raise invalid("the request lacks volume_capability")
    if capability.HasField("block"):
        raise invalid("a volume of Holdfast is a file system: volumeMode Block is not possible")
    read_only = asked.readonly or capability.access_mode.mode in _READER_ONLY
    attributes = dict(asked.volume_context)
    uid, name = pod_of(attributes)
    return Volume(asked.volume_id, asked.target_path, wanted(attributes, read_only=read_only), uid, name)


def _is_stale(volume: Volume, mount: Mount) -> bool:
    """Say whether a volume's target has another Holdfast's mount, one that has ended or is about to."""
    bound = mounts.mounted_on(volume.target)
    return bound is not None and bound.is_holdfast and bound.device != mount.device


def _cover(mount: Mount, volume: Volume) -> bool:
    """Bind a volume again, and say whether containers that run may see it. Raises ``CallError``.

    A container has a copy of the old mount, not of the directory below that: what is mounted on the old one reaches it. The
    kernel refuses that where somebody has looked for the volume's directory from above in the dead mount, and not found it.
    """
    try:
        bind(mount, volume)
    except CallError:
        _clear(volume.target)
        bind(mount, volume)
        return False
    return True


def _clear(target: str) -> None:
    """Unmount all that is mounted on a target; what is open there stays usable."""
    while mounts.mounted_on(target) is not None:
        mounts.detach(target)
