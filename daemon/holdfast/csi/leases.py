"""Leases of working directories that volumes hold: taken before a pod starts, ended with its volume, or swept after it."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.control.client import ControlClient, RefusedError
from holdfast.control.messages import WorkdirInfo
from holdfast.csi.serving import CallError, invalid
from holdfast.csi.volumes import Volume
from holdfast.errors import HoldfastError

_MOST_SLOTS = 256
_TAKEN = ("lease-held", "foreign-workdir")
"""The codes of refusals after which the next slot may be free."""
_log = logging.getLogger("holdfast.csi")


class Leases:
    """Takes leases from the daemon behind ``socket``; ``pods`` is kubelet's directory with one for each pod."""

    def __init__(self, socket: Path, pods: Path) -> None:
        self._socket = socket
        self._pods = pods

    def acquire(self, volume: Volume) -> str:
        """Return the path, below the mount, of the directory that the volume holds from now on.

        Raises ``CallError`` and what the daemon refuses.
        """
        if not volume.pod_uid:
            raise invalid("a working directory is for a pod, and kubelet has named none: podInfoOnMount in the CSIDriver")
        role, _, name = volume.wanted.workdir.partition("/")
        owner = volume.wanted.uid, volume.wanted.gid
        with ControlClient(self._socket) as daemon:
            ids = _free_ids(daemon.workdirs(), volume, role, name) if volume.wanted.slots else [name]
            for resource_id in ids:
                try:
                    held = daemon.acquire_for_volume(role, resource_id, volume.lease, volume.pod, owner)
                except RefusedError as problem:
                    if volume.wanted.slots and problem.failure.code in _TAKEN:
                        continue
                    raise
                return os.path.relpath(held.path, daemon.status().mountpoint)
        raise CallError("RESOURCE_EXHAUSTED", f"{_MOST_SLOTS} working directories {role}_{name}-… are held on this node")

    def release(self, volume: Volume) -> None:
        """End the hold of a volume that is gone. If the daemon can't be told, the sweep does it."""
        try:
            with ControlClient(self._socket) as daemon:
                self._release(daemon, [info for info in daemon.workdirs() if info.volume == volume.lease])
        except HoldfastError as problem:
            _log.warning("%s: its lease ends when the pod's directory is gone: %s", volume.name, problem)

    def sweep(self) -> None:
        """End the leases of pods that this node has no more, as after it was reset. Raises ``HoldfastError``."""
        if not self._pods.is_dir():  # this is not kubelet's directory: all pods would seem to be gone
            return
        with ControlClient(self._socket) as daemon:
            self._release(daemon, [info for info in daemon.workdirs() if info.volume and not self.has(info.volume)])

    def has(self, lease: str) -> bool:
        """Say whether kubelet has the pod of a lease, or of a volume's uid."""
        return (self._pods / lease.partition("/")[0]).exists()

    @staticmethod
    def _release(daemon: ControlClient, held: list[WorkdirInfo]) -> None:
        for info in held:
            daemon.release(info.role, info.id, info.volume)
            _log.info("%s is released: it was held by %s", info.path, info.holder)


def _free_ids(workdirs: list[WorkdirInfo], volume: Volume, role: str, name: str) -> Iterator[str]:
    """Yield the ids ``NAME-0``, ``NAME-1``, … that nobody holds; alone the one that the volume holds already."""
    held = {info.id: info for info in workdirs if info.role == role and info.holder}
    own = [info.id for info in held.values() if info.volume == volume.lease]
    slots = (f"{name}-{number}" for number in itertools.islice(itertools.count(), _MOST_SLOTS))
    yield from own or (slot for slot in slots if slot not in held)
