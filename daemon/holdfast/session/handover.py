"""Handing a mount from one daemon to the next: finding a mount to take over, and having this one's descriptor held.

To take a mount over takes its descriptor, which the service manager held, and its session (``holdfast.session``), both of
the file system that is mounted now. If anything is missing, the old mount is removed and a new one made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import TakeoverError, UnmountedError
from holdfast.mount import mountpoint
from holdfast.session import Identity, SessionArea
from holdfast.supervision.service_manager import ServiceManager

NOT_HELD = (
    "nobody holds the mount while there is no daemon; "
    "start it with 'holdfast mount --supervise', or as a service of systemd with FileDescriptorStoreMax=1"
)
"""The reason why a mount that could be taken over ends with its daemon, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """A mount whose daemon has ended, and the ``/dev/fuse`` descriptor to serve it with."""

    identity: Identity
    device: int

    def check(self, asked_for: str, store_id: str) -> None:
        """Check that this daemon may take it over. Raises ``TakeoverError``."""
        mount = mountpoint.mounted_on(self.identity.mountpoint)
        if mount is None or mount.device != self.identity.device:
            raise TakeoverError(f"it is no longer mounted on {self.identity.mountpoint}")
        if self.identity.asked_for != asked_for:
            raise TakeoverError(f"it is mounted on {self.identity.asked_for}, and mount.mountpoint is {asked_for} now")
        if self.identity.store != store_id:
            raise TakeoverError("it belongs to another store directory")

    def clear_away(self, asked_for: str) -> None:
        """Give the mount up: files open in it get errors from now on.

        If the next mount will be in the same place, the dead one stays until then: nobody must see the empty directory.
        """
        mount = mountpoint.mounted_on(self.identity.mountpoint)
        if self.identity.asked_for != asked_for and mount is not None and mount.device == self.identity.device:
            mountpoint.detach(self.identity.mountpoint)
        os.close(self.device)


class Handover:
    """The session ``area``, and the service manager that holds the mount's descriptor."""

    def __init__(self, area: SessionArea, manager: ServiceManager, descriptors: Mapping[str, int]) -> None:
        self.area = area
        self.manager = manager
        self._descriptors = dict(descriptors)
        self._held = ""
        self._found: Identity | None = None

    @property
    def is_held(self) -> bool:
        """True if a service manager holds the descriptor and is still running."""
        return bool(self._held) and self.manager.is_there()

    def find(self) -> Inheritance | None:
        """Return the mount that an earlier daemon has left, if there is one.

        Raises ``TakeoverError`` if it can't be taken over, ``MountpointError`` if another service manager holds it,
        ``StoreInUseError`` if its daemon is running, ``ConfigurationError`` if the session can't be opened.
        """
        self.area.claim()
        identity = self.area.read()
        if identity is None:
            self.abandon()
            return None
        self._found = identity
        if not _is_there(identity):
            raise TakeoverError(f"it is no longer mounted on {identity.mountpoint}")
        device = self._descriptors.pop(_name(identity.device), None)
        if device is None:
            _check_unheld(identity)
            raise TakeoverError("nobody has kept its descriptor")
        self._held = _name(identity.device)
        return Inheritance(identity, device)

    def check_wanted(self) -> None:
        """Check that a mount which can't be taken over may be replaced by a new one: it was not unmounted on purpose.

        Raises ``UnmountedError`` if it was unmounted and this daemon was only started because the one before it died; the
        session and the descriptors are given up then.
        """
        found = self._found
        if found is None or _is_there(found):
            return
        if self.manager.starts_again(gave_back=bool(self._held) or _name(found.device) in self._descriptors):
            self.abandon()
            self.area.end()
            raise UnmountedError(f"{found.mountpoint} was unmounted while no daemon ran; start again to mount it")

    def abandon(self) -> None:
        """Give up every mount that was held: without descriptors they are dead, and their sessions are useless."""
        for name, fd in self._descriptors.items():
            self.manager.let_go(name)
            os.close(fd)
        self._descriptors.clear()
        self._release()
        self.area.disown()

    def begin(self) -> None:
        """Prepare the session of a new mount. Raises ``ConfigurationError`` and ``StoreInUseError`` as ``SessionArea``."""
        self.area.begin()

    def mounted(self, path: str, asked_for: str, store_id: str, device: int | None) -> None:
        """Record a new mount. ``device`` is its descriptor if it can be taken over; the service manager gets it to hold."""
        mount = mountpoint.mounted_on(path)
        if mount is None or device is None:
            return
        self.area.sign(Identity(mountpoint=path, asked_for=asked_for, device=mount.device, store=store_id))
        if self.manager.hold(_name(mount.device), device):
            self._held = _name(mount.device)

    def taken_over(self, inheritance: Inheritance) -> None:
        """Record that this daemon has taken the mount over."""
        self.area.sign_anew(inheritance.identity)

    def end(self) -> None:
        """Give everything up: the mount is gone for good."""
        self._release()
        self.area.end()

    def is_restarting(self) -> bool:
        """Say whether the stop that was asked for is the first half of a restart."""
        return self.manager.is_restarting()

    def _release(self) -> None:
        if self._held:
            self.manager.let_go(self._held)
            self._held = ""


def _check_unheld(identity: Identity) -> None:
    """Check that no other service manager holds the mount for its own next daemon. Raises ``MountpointError``."""
    if mountpoint.mounted_on(identity.mountpoint) is not None:
        mountpoint.check(identity.mountpoint)


def _is_there(identity: Identity) -> bool:
    return mountpoint.is_mounted(identity.mountpoint, identity.device)


def _name(device: int) -> str:
    return f"holdfast-{device}"
