"""The service manager, which starts the daemon and restarts it: systemd, or the ``supervisor`` with the same protocol.

Messages go to its notification socket (sd_notify(3)). It can hold descriptors, which the next daemon gets back at its start
(sd_listen_fds(3)), so they outlive this one. Without such a socket there is no service manager, and nothing is held.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from holdfast.system.processes import for_child

RESTART_STATUS = 75
"""Exit status of a daemon that asks to be started again: EX_TEMPFAIL of sysexits.h."""
NOT_CONFIGURED_STATUS = 78
"""Exit status of a daemon that is not configured yet, which no restart would help: EX_CONFIG of sysexits.h."""
FIRST_DESCRIPTOR = 3
_SECONDS = 5.0


class ServiceManager:
    """The manager that the environment names. ``unit`` is the daemon's unit if that is systemd, else empty."""

    def __init__(self, environment: Mapping[str, str], unit: str = "") -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._unit = unit
        own = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "") if own else ""
        self.watchdog_seconds = int(microseconds) / 1e6 if microseconds else None
        """The time for which the manager lets the daemon be silent before it replaces it; None if it does not watch it."""

    def tell(self, message: str, *descriptors: int) -> bool:
        """Send a message, with descriptors; say whether there is a manager to receive it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_SECONDS)
            if not self._connects(channel):
                return False
            try:
                socket.send_fds(channel, [message.encode()], list(descriptors))
            except (TimeoutError, ConnectionRefusedError):  # it hangs, or has ended just now
                return False
        return True

    def tell_alive(self) -> None:
        """Give the manager a sign of life. Does not wait for a manager that takes no messages at the moment."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            if self._connects(channel):
                with suppress(BlockingIOError):
                    channel.send(b"WATCHDOG=1")

    def end_watch(self) -> None:
        """Tell the manager to expect no more signs of life of this daemon."""
        self.tell("WATCHDOG_USEC=0")

    def is_there(self) -> bool:
        """Say whether there is a manager now: a supervisor that was killed holds nothing and restarts nothing."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            return self._connects(channel)

    def hold(self, name: str, fd: int) -> bool:
        """Give the manager a descriptor to hold; say whether it holds it."""
        return self.tell(f"FDSTORE=1\nFDNAME={name}", fd) and self._has_stored()

    def let_go(self, name: str) -> None:
        """Make the manager close the descriptors with this name."""
        self.tell(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def starts_again(self, *, gave_back: bool) -> bool:
        """Say whether this daemon was started because the one before it died, not because a person asked for it.

        ``gave_back`` says whether a descriptor came back; a supervisor has none when it starts its first daemon. systemd may
        have closed the descriptor of a mount that is gone, but counts automatic restarts; False when systemctl fails.
        """
        if not self._unit:
            return gave_back
        return self._systemctl("show", "--property=NRestarts", "--value", self._unit).strip() not in ("", "0")

    def is_restarting(self) -> bool:
        """Ask systemd whether its current request to stop is the first half of a restart."""
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
            return False  # it has ended, or does not accept this daemon
        return True

    def _has_stored(self) -> bool:
        """Ask systemd whether it holds any descriptor of the unit: it reports no error for one too many.

        It handles the unit's messages before the question.
        """
        if not self._unit:
            return True
        return self._systemctl("show", "--property=NFileDescriptorStore", "--value", self._unit).strip() != "0"

    def _systemctl(self, *arguments: str) -> str:
        """Return the output of systemctl; empty when it fails to run."""
        try:
            return subprocess.run(
                ["systemctl", *arguments],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                env=for_child(os.environ),
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return ""


def received(environment: MutableMapping[str, str]) -> dict[str, int]:
    """Return the descriptors that the manager held, by name, and remove them from the environment. The caller owns them."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "0")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()):
        return {}
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    for fd in descriptors:
        os.set_inheritable(fd, False)
    return dict(zip(names, descriptors, strict=False))
