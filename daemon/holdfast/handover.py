"""From one daemon to the next: whether there is a living mount to take over, and who keeps this one alive.

What is needed to take a mount over: its descriptor, which the service manager held; its session (``holdfast.session``); and
that both are of the mount that is there. If anything is missing, the old mount is cleared away and a new one made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast import mountpoint
from holdfast.errors import TakeoverError, UnmountedError
from holdfast.service_manager import ServiceManager
from holdfast.session import Identity, SessionArea

NOT_HELD = (
    "nobody holds the mount while there is no daemon; "
    "start it with 'holdfast mount --supervise', or as a service of systemd with FileDescriptorStoreMax=1"
)
"""Why a mount that could be taken over ends with its daemon, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """A living mount without a daemon, and the descriptor to serve it by."""

    identity: Identity
    device: int

    def check(self, asked_for: str, store_id: str) -> None:
        """Make sure that this daemon may take it over. Raises ``TakeoverError``."""
        mount = mountpoint.mounted_on(self.identity.mountpoint)
        if mount is None or mount.device != self.identity.device:
            raise TakeoverError(f"it is no longer mounted on {self.identity.mountpoint}")
        if self.identity.asked_for != asked_for:
            raise TakeoverError(f"it is mounted on {self.identity.asked_for}, and mount.mountpoint is {asked_for} now")
        if self.identity.store != store_id:
            raise TakeoverError("it belongs to another store directory")

    def clear_away(self, asked_for: str) -> None:
        """Let go of the mount: it has no future. What is open in it ends with errors.

        If it is where the next one will be, it stays until then, dead: nobody may take the empty directory for it.
        """
        mount = mountpoint.mounted_on(self.identity.mountpoint)
        if self.identity.asked_for != asked_for and mount is not None and mount.device == self.identity.device:
            mountpoint.detach(self.identity.mountpoint)
        os.close(self.device)


class Handover:
    """The session ``area`` and the service manager that holds the descriptor beside it."""

    def __init__(self, area: SessionArea, manager: ServiceManager, descriptors: Mapping[str, int]) -> None:
        self.area = area
        self._manager = manager
        self._descriptors = dict(descriptors)
        self._held = ""
        self._left: Identity | None = None

    @property
    def is_held(self) -> bool:
        """Whether somebody has been given the descriptor, and is still there."""
        return bool(self._held) and self._manager.is_there()

    def find(self) -> Inheritance | None:
        """Return what an earlier daemon has left, if there is anything.

        Raises ``TakeoverError`` when it is of no use, ``MountpointError`` when it is another's to take over,
        ``StoreInUseError`` when it is that of a daemon that lives, ``ConfigurationError`` when the session can't be opened.
        """
        self.area.claim()
        identity = self.area.read()
        if identity is None:
            self.abandon()
            return None
        self._left = identity
        if not _is_there(identity):
            raise TakeoverError(f"it is no longer mounted on {identity.mountpoint}")
        device = self._descriptors.pop(_name(identity.device), None)
        if device is None:
            _check_unheld(identity)
            raise TakeoverError("nobody has kept its descriptor")
        self._held = _name(identity.device)
        return Inheritance(identity, device)

    def check_wanted(self) -> None:
        """Make sure that a mount which can't be taken over may be made afresh: nobody has unmounted it.

        Raises ``UnmountedError`` if somebody has, and only the holder's promise to start the next daemon brought this one;
        what was kept of the mount is gone then.
        """
        left = self._left
        if left is None or _is_there(left):
            return
        if self._manager.starts_again(gave_back=bool(self._held) or _name(left.device) in self._descriptors):
            self.abandon()
            self.area.end()
            raise UnmountedError(f"{left.mountpoint} was unmounted while no daemon ran; start again to mount it")

    def abandon(self) -> None:
        """Let go of every mount that was held: without descriptors they are dead, and what was kept of them worthless."""
        for name, fd in self._descriptors.items():
            self._manager.let_go(name)
            os.close(fd)
        self._descriptors.clear()
        self._release()
        self.area.disown()

    def begin(self) -> None:
        """A new mount is about to be made. Raises ``ConfigurationError``, and ``StoreInUseError``: see ``SessionArea``."""
        self.area.begin()

    def mounted(self, path: str, asked_for: str, store_id: str, device: int | None) -> None:
        """A new mount is there. ``device``: its descriptor, if it can be taken over; it is given to whoever may hold it."""
        mount = mountpoint.mounted_on(path)
        if mount is None or device is None:
            return
        self.area.sign(Identity(mountpoint=path, asked_for=asked_for, device=mount.device, store=store_id))
        if self._manager.hold(_name(mount.device), device):
            self._held = _name(mount.device)

    def end(self) -> None:
        """The mount is gone for good."""
        self._release()
        self.area.end()

    def is_restarting(self) -> bool:
        """Say whether the signal to stop is the first half of a restart."""
        return self._manager.is_restarting()

    def _release(self) -> None:
        if self._held:
            self._manager.let_go(self._held)
            self._held = ""


def _check_unheld(identity: Identity) -> None:
    """Make sure that nobody else holds the mount: it is his daemon's then. Raises ``MountpointError``."""
    if mountpoint.mounted_on(identity.mountpoint) is not None:
        mountpoint.check(identity.mountpoint)


def _is_there(identity: Identity) -> bool:
    return mountpoint.is_mounted(identity.mountpoint, identity.device)


def _name(device: int) -> str:
    return f"holdfast-{device}"
