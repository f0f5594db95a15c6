"""Handing a mount from one daemon to the next: finding a mount to take over, and having this one's descriptor held.

To take a mount over takes its descriptor, which a service manager or a keeper held, and its session (``holdfast.session``),
both of the file system that is mounted now. If anything is missing, the old mount is removed and a new one made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import TakeoverError, UnmountedError
from holdfast.mount import mountpoint
from holdfast.session import Identity, SessionArea
from holdfast.supervision.keeper_link import KeeperLink
from holdfast.supervision.service_manager import ServiceManager

NOT_HELD = (
    "nobody holds the mount while there is no daemon; "
    "start it with 'holdfast mount --supervise', as a service of systemd with FileDescriptorStoreMax=1, "
    "or with a keeper (mount.keeper)"
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
    """The session ``area``, and those who hold the mount's descriptor: the service manager, and a ``keeper`` or none.

    ``descriptors`` came from the service manager at the start.
    """

    def __init__(
        self,
        area: SessionArea,
        manager: ServiceManager,
        descriptors: Mapping[str, int],
        keeper: KeeperLink | None = None,
    ) -> None:
        self.area = area
        self.manager = manager
        self.keeper = keeper
        self._descriptors = dict(descriptors)
        self._from_manager = frozenset(descriptors)
        self._held = ""
        self._is_with_manager = False
        self._found: Identity | None = None

    @property
    def is_held(self) -> bool:
        """True if somebody holds the descriptor: a service manager that is still running, or a keeper that says so."""
        return self.is_kept or (self._is_with_manager and self.manager.is_there())

    @property
    def is_kept(self) -> bool:
        """True if a keeper holds the descriptor, which stays when the service manager goes too."""
        return self.keeper is not None and self.keeper.is_holding

    @property
    def why_not_held(self) -> str:
        """The reason why nobody holds the descriptor, and what to do about it."""
        return self.keeper.problem if self.keeper is not None else NOT_HELD

    def fetch(self) -> bool:
        """Fetch what the keeper holds; say whether any descriptor is there. Raises ``StoreInUseError``."""
        if self.keeper is not None:
            for name, fd in self.keeper.fetch().items():
                if name in self._descriptors:
                    os.close(fd)
                else:
                    self._descriptors[name] = fd
        return bool(self._descriptors)

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
        self._is_with_manager = self._held in self._from_manager
        return Inheritance(identity, device)

    def check_wanted(self) -> None:
        """Check that a mount which can't be taken over may be replaced by a new one: it was not unmounted on purpose.

        Raises ``UnmountedError`` if it was unmounted and this daemon was only started because the one before it died; the
        session and the descriptors are given up then.
        """
        found = self._found
        if found is None or _is_there(found):
            return
        if self.manager.starts_again(gave_back=_name(found.device) in self._from_manager):
            self.abandon()
            self.area.end()
            raise UnmountedError(f"{found.mountpoint} was unmounted while no daemon ran; start again to mount it")

    def abandon(self) -> None:
        """Give up every mount that was held: without descriptors they are dead, and their sessions are useless."""
        for name, fd in self._descriptors.items():
            self._let_go(name)
            os.close(fd)
        self._descriptors.clear()
        self._release()
        self.area.disown()

    def begin(self) -> None:
        """Prepare the session of a new mount. Raises ``ConfigurationError`` and ``StoreInUseError`` as ``SessionArea``."""
        self.area.begin()

    def mounted(self, path: str, asked_for: str, store_id: str, device: int | None) -> None:
        """Record a new mount. ``device`` is its descriptor if it can be taken over, which is to be held from now on."""
        mount = mountpoint.mounted_on(path)
        if mount is None or device is None:
            return
        self.area.sign(Identity(mountpoint=path, asked_for=asked_for, device=mount.device, store=store_id))
        self._held = _name(mount.device)
        self._hold(device)

    def taken_over(self, inheritance: Inheritance) -> None:
        """Record that this daemon has taken the mount over."""
        self.area.sign_anew(inheritance.identity)
        self._hold(inheritance.device)

    def end(self) -> None:
        """Give everything up: the mount is gone for good."""
        self._release()
        if self.keeper is not None:
            self.keeper.close()
        self.area.end()

    def is_restarting(self) -> bool:
        """Say whether the stop that was asked for is the first half of a restart."""
        return self.manager.is_restarting()

    def _hold(self, device: int) -> None:
        """Give the descriptor to those who don't hold it yet."""
        self._is_with_manager = self._is_with_manager or self.manager.hold(self._held, device)
        if self.keeper is not None:
            self.keeper.want(self._held, device)

    def _release(self) -> None:
        if self._held:
            self._let_go(self._held)
            self._held = ""
            self._is_with_manager = False

    def _let_go(self, name: str) -> None:
        self.manager.let_go(name)
        if self.keeper is not None:
            self.keeper.let_go(name)


def _check_unheld(identity: Identity) -> None:
    """Check that no other service manager holds the mount for its own next daemon. Raises ``MountpointError``."""
    if mountpoint.mounted_on(identity.mountpoint) is not None:
        mountpoint.check(identity.mountpoint)


def _is_there(identity: Identity) -> bool:
    return mountpoint.is_mounted(identity.mountpoint, identity.device)


def _name(device: int) -> str:
    return f"holdfast-{device}"
