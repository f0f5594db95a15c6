"""A bare Debian with systemd as its first process, in a container."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.daemons.node import wait_until
from tests.support.debian.bare_debian import bare_debian, container, shell

_START_SECONDS = 300


class Machine:
    """A booted container. ``root`` is its root directory as seen from outside, ``binds`` are mounted there to be read."""

    def __init__(self, root: Path, binds: Mapping[Path, str]) -> None:
        self.root = root
        self._binds = binds
        self._container: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start it; return when all of its units have started."""
        with self.root.with_suffix(".log").open("ab") as log:
            command = container(self.root, self._binds, "--boot", "--private-network")
            self._container = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        root = self.root.stat()
        inside = f'[ "$(stat -c %d:%i /)" = {root.st_dev}:{root.st_ino} ]'  # at first, _leader still sees the root outside
        up = "systemctl is-system-running | grep -qxE 'running|degraded'"
        wait_until(lambda: self.does(f"{inside} && {up}"), _START_SECONDS)

    @property
    def _leader(self) -> int:
        """The first process of the container, as seen from outside; while it is set up, another; 0 before."""
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        return int((children.read_text().split() or ["0"])[-1])

    def shut_down(self) -> None:
        """Let it stop its units and end."""
        assert self._container is not None
        os.kill(self._leader, signal.SIGRTMIN + 4)  # poweroff.target (systemd(1))
        self._container.wait()

    def kill(self) -> None:
        """End it however it is."""
        if self._container is not None and self._container.poll() is None:
            leader = self._leader
            with suppress(ProcessLookupError):  # it ends by itself
                if leader:  # or this would be our own group
                    os.kill(leader, signal.SIGKILL)
            if not leader:
                self._container.kill()
            self._container.wait()

    def run(self, command: str) -> str:
        """Run a shell command as root; return what it prints. It must succeed."""
        done = self._run(command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def fails(self, command: str) -> str:
        """Run a shell command as root; return what it prints. It must fail."""
        done = self._run(command)
        assert done.returncode != 0, f"{command}\n{done.stdout}"
        return done.stdout

    def does(self, command: str) -> bool:
        """Say whether a shell command succeeds."""
        return self._run(command).returncode == 0

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-w", *shell(command)]
        told = subprocess.PIPE
        return subprocess.run(enter, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT, text=True, check=False)


@contextmanager
def bare_machine(release: str, binds: Mapping[Path, str]) -> Iterator[Machine]:
    """A machine that is not yet booted."""
    with bare_debian(release) as root:
        machine = Machine(root, binds)
        try:
            yield machine
        finally:
            machine.kill()
