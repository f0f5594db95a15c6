"""A ``holdfast keeper`` in a process of its own, and its protocol as a daemon of any version speaks it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.supervision.held_descriptors import parsed
from tests.support.processes.children import children_of

_SECONDS = 30.0


class KeeperProcess:
    """A keeper in ``directory``, started under the command ``prefix``; ``said`` has its lines."""

    def __init__(self, directory: Path, *options: str, prefix: tuple[str, ...] = ()) -> None:
        self.directory = directory
        command = [*prefix, sys.executable, "-m", "holdfast.supervision.keeper", *options, str(directory)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        try:
            self.wait_said("ready in")
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise
        self.pid = children_of(self._process.pid, b"keeper")[0] if prefix else self._process.pid
        """The process as this one sees it."""

    def wait_said(self, text: str) -> str:
        """Wait for a line with ``text``, after those that were waited for before; return it."""
        assert self._process.stderr is not None
        while True:
            line = self._process.stderr.readline()
            assert line, f"the keeper has ended, and never said {text!r}: {self.said}"
            self.said.append(line)
            if text in line:
                return line

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; return its exit status."""
        with suppress(ProcessLookupError):  # it has ended before
            self.send_signal(number)
            self.send_signal(signal.SIGCONT)
        self._process.communicate(timeout=_SECONDS)
        return self._process.returncode

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        """Connect to it; the first message is its own."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
            channel.settimeout(_SECONDS)
            channel.connect(str(self.directory / "keep.sock"))
            yield channel

    def give(self, name: str, fd: int) -> None:
        """Give it a descriptor, as sd_pid_notify_with_fds(3) does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(str(self.directory / "notify.sock"))
            socket.send_fds(channel, [f"FDSTORE=1\nFDNAME={name}".encode()], [fd])

    def holds(self) -> str:
        """Return the names of what it holds."""
        with self.connected() as channel:
            channel.recv(4096)
            channel.send(b"LIST=1")
            return parsed(channel.recv(4096))["NAMES"]


def exchanged(channel: socket.socket, request: str) -> tuple[dict[str, str], list[int]]:
    """Send a request, or nothing; return the next message and its descriptors."""
    if request:
        channel.send(request.encode())
    data, descriptors, _, _ = socket.recv_fds(channel, 4096, 16)
    return parsed(data), descriptors


@contextmanager
def keeper(directory: Path, *options: str, prefix: tuple[str, ...] = ()) -> Iterator[KeeperProcess]:
    """Run a keeper for the duration of the block."""
    process = KeeperProcess(directory, *options, prefix=prefix)
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


def end_of(reader: int) -> bool:
    """Wait until the last writer of a pipe has closed it."""
    return bool(select.select([reader], [], [], _SECONDS)[0]) and os.read(reader, 1) == b""
