"""The parent's side of ``small_filesystem``: starts it, kills it, and holds the descriptor that keeps the mount alive."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SECONDS = 60.0
_READY = b"ready\n"


@dataclass
class Told:
    """What the daemon says of itself."""

    requests: dict[str, int]
    mode: str
    takeover: str
    resent: list[str]
    open: int
    ids: int


@dataclass
class SmallMount:
    """A mounted ``small_filesystem``; at most one daemon at a time."""

    directory: Path
    device: int = -1
    _daemon: subprocess.Popen[bytes] | None = None
    _channel: socket.socket | None = None

    def __post_init__(self) -> None:
        for name in ("mount", "backing", "state"):
            (self.directory / name).mkdir(parents=True)

    @property
    def path(self) -> Path:
        """Where it is mounted."""
        return self.directory / "mount"

    @property
    def backing(self) -> Path:
        """Where the files are."""
        return self.directory / "backing"

    @property
    def kept(self) -> Path:
        """Where the start of the mount is kept."""
        return self.directory / "state" / "init"

    def start(self, *, passthrough: bool = True, die_in: str = "", environment: dict[str, str] | None = None) -> None:
        """Start a daemon: the first one mounts, a later one takes over. Returns when it serves."""
        if self._channel is not None:
            self._channel.close()
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(_SECONDS)
        settings: dict[str, Any] = {
            "mountpoint": str(self.path),
            "backing": str(self.backing),
            "state": str(self.directory / "state"),
            "socket_fd": theirs.fileno(),
            "device_fd": self.device,
            "passthrough": passthrough,
            "die_in": die_in,
        }
        self._daemon = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kernel.small_filesystem", json.dumps(settings)],
            pass_fds=[theirs.fileno(), *([self.device] if self.device >= 0 else [])],
            env={**os.environ, **(environment or {})},
        )
        theirs.close()
        said, descriptors, _, _ = socket.recv_fds(self._channel, len(_READY), 1)
        assert said == _READY, "the daemon did not start"
        if descriptors:
            (self.device,) = descriptors

    def ask(self) -> Told:
        """Ask the daemon about itself."""
        assert self._channel is not None
        self._channel.sendall(b"?\n")
        return Told(**json.loads(self._line()))

    def descriptors(self) -> int:
        """Return how many descriptors the daemon has open."""
        assert self._daemon is not None
        return len(os.listdir(f"/proc/{self._daemon.pid}/fd"))

    def wait_until_dying(self) -> None:
        """Return when the handler that was to die has done its work and not replied."""
        assert self._line() == b"dying\n"

    def kill(self) -> None:
        """Kill the daemon; the mount stays, as long as ``device`` is open."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGKILL)
        self._daemon.wait(_SECONDS)

    def end(self) -> None:
        """End everything, whatever state it is in: without a descriptor left the kernel fails all who wait."""
        if self._daemon is not None and self._daemon.poll() is None:
            self.kill()
        if self._channel is not None:
            self._channel.close()
        if self.device >= 0:
            os.close(self.device)
        subprocess.run(["umount", "--lazy", str(self.path)], check=True, capture_output=True)

    def _line(self) -> bytes:
        assert self._channel is not None
        line = b""
        while not line.endswith(b"\n"):
            part = self._channel.recv(65536)
            assert part, "the daemon hung up"
            line += part
        return line
