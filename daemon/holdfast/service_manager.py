"""The process that starts and restarts this daemon: systemd, or ``holdfast.keeper``, which speaks the same protocol.

Messages go to its notification socket (sd_notify(3)). Descriptors stored with it come back at the next start
(sd_listen_fds(3)), so they outlive the daemon. Without such a socket nothing holds descriptors.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, MutableMapping

RESTART_STATUS = 75
"""Exit status that asks for a restart: EX_TEMPFAIL of sysexits.h."""
FIRST_DESCRIPTOR = 3
_SECONDS = 5.0


class ServiceManager:
    """The manager that the environment names. ``unit`` is the daemon's systemd unit; empty if the manager is not systemd."""

    def __init__(self, environment: Mapping[str, str], unit: str = "") -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._unit = unit

    def tell(self, message: str, *descriptors: int) -> bool:
        """Send a message, with descriptors; say whether there was a manager to receive it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            if not self._connects(channel):
                return False
            socket.send_fds(channel, [message.encode()], list(descriptors))
        return True

    def is_there(self) -> bool:
        """Say whether there is a manager. A keeper that was killed is gone, and its descriptors with it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            return self._connects(channel)

    def hold(self, name: str, fd: int) -> bool:
        """Store a descriptor with the manager; say whether there is one that can hold it."""
        return self._has_room() and self.tell(f"FDSTORE=1\nFDNAME={name}", fd)

    def let_go(self, name: str) -> None:
        """Let the manager close the descriptors with this name."""
        self.tell(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def starts_again(self, *, gave_back: bool) -> bool:
        """Say whether this daemon was started because its predecessor died, and not because a person asked for it.

        ``gave_back``: whether a descriptor came back. A keeper has none when it starts its first daemon. systemd may have
        closed it, since nothing is behind it any more, but it counts its restarts; False if systemd can't be asked.
        """
        if not self._unit:
            return gave_back
        return self._systemctl("show", "--property=NRestarts", "--value", self._unit).strip() not in ("", "0")

    def is_restarting(self) -> bool:
        """Ask systemd whether the stop that it has just requested is the first half of a restart."""
        if not self._unit:
            return False
        jobs = self._systemctl("list-jobs", "--no-legend", "--plain", self._unit)
        return any(fields[1:3] == [self._unit, "restart"] for fields in map(str.split, jobs.splitlines()))

    def _connects(self, channel: socket.socket) -> bool:
        if not self._address:
            return False
        try:
            channel.connect(self._address)
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            return False  # it has ended, or this daemon may not talk to it
        return True

    def _has_room(self) -> bool:
        """Ask systemd whether the unit may store descriptors: systemd drops them silently if it may not."""
        if not self._unit:
            return True
        return self._systemctl("show", "--property=FileDescriptorStoreMax", "--value", self._unit).strip() != "0"

    def _systemctl(self, *arguments: str) -> str:
        """Return the output of systemctl; empty if it can't be run."""
        try:
            return subprocess.run(
                ["systemctl", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return ""


def received(environment: MutableMapping[str, str]) -> dict[str, int]:
    """Return the descriptors that the manager held, by name. This process owns them from now on."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "0")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()):
        return {}
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    for fd in descriptors:
        os.set_inheritable(fd, False)
    return dict(zip(names, descriptors, strict=False))
