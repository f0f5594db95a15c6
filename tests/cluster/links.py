"""A node's line to the store: so far, so wide, and cut when a test says so."""

from __future__ import annotations

import signal
import subprocess

from tests.support.stores import delaying_proxy


class Link:
    """A proxy of one node's own to the store. ``endpoint`` stays the same, whatever happens to the line."""

    def __init__(self, upstream: str, away_seconds: float, bytes_per_second: int) -> None:
        self._upstream = upstream
        self._away_seconds = away_seconds
        self._bytes_per_second = bytes_per_second
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Where the node reaches the store, once the line has been opened."""
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Let everything pass."""
        if self._process is None:
            self._process = delaying_proxy.start(self._upstream, self._away_seconds, self._bytes_per_second, self._port)
            self._port = delaying_proxy.listening_port(self._process)

    def cut(self) -> None:
        """Break the connections, and refuse new ones until ``open``."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def silence(self) -> None:
        """Take what comes, and neither pass it on nor answer, until ``speak``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def speak(self) -> None:
        """Go on after ``silence``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
