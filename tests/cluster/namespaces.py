"""Name spaces with a first process of their own, and ways into them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.node_init import Plan
from tests.support.processes.children import DIES_WITH_US

_START_SECONDS = 30.0
_UNSHARE = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")


class NamespaceError(Exception):
    """The name spaces could not be made; the message has the reason."""


@dataclass(frozen=True)
class Identity:
    """Who runs a command on a node, in which directory, with which environment."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    directory: str
    environment: Mapping[str, str]


class Namespaces:
    """Made by ``start``, ended by ``kill``; both may be called again."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self._plan = plan
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.first_pid = 0
        """The first process in them, as it is called outside."""

    def start(self) -> None:
        """Make them. Raises ``NamespaceError``."""
        command = [*DIES_WITH_US, *_UNSHARE, sys.executable, "-m", "tests.cluster.node_init", self._plan.encoded()]
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self._process = process
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], _START_SECONDS)[0] or process.stdout.readline() != "ready\n":
            self.kill()
            raise NamespaceError(
                f"{self._plan.hostname} could not be made:\n{self._log.read_text(errors='replace')[-2000:]}"
            )
        self.first_pid = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())

    def kill(self) -> None:
        """SIGKILL all processes in them; return when they are gone, with all their mounts."""
        process, self._process = self._process, None
        if process is None:
            return
        if self.first_pid:
            kill_process(self.first_pid)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self.first_pid = 0

    @property
    def lives(self) -> bool:
        """Whether they are there."""
        return self._process is not None and self._process.poll() is None

    def seen_from_outside(self, path: Path) -> Path:
        """Return a path by which this process reaches ``path`` as it is inside."""
        return Path(f"/proc/{self.first_pid}/root{path}")

    def processes(self, name: str) -> list[int]:
        """Return the processes with ``name`` in their command line, as they are called outside."""
        return [pid for pid in _numbers() if name.encode() in _read(pid, "cmdline") and self._holds(pid)]

    def _holds(self, pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{self.first_pid}/ns/pid").st_ino
        except (FileNotFoundError, ProcessLookupError):
            return False

    def command(self, identity: Identity, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs ``arguments`` inside."""
        return entering(self.first_pid, identity, arguments)


def kill_process(pid: int) -> None:
    """SIGKILL a process; return when it has ended, or had ended before."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])
    finally:
        os.close(pidfd)


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def entering(first_pid: int, identity: Identity, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs ``arguments`` in the name spaces of a first process, with nothing of our environment."""
    enter = ["nsenter", "--target", str(first_pid), "--mount", "--uts", "--pid"]
    groups = ["--groups", ",".join(map(str, identity.groups))] if identity.groups else ["--clear-groups"]
    become = ["setpriv", "--reuid", str(identity.uid), "--regid", str(identity.gid), *groups]
    if identity.uid:
        become += ["--inh-caps=-all"]
    variables = [f"{name}={value}" for name, value in identity.environment.items()]
    return [*enter, "--", *become, "--", "env", "-i", "-C", identity.directory, *variables, *arguments]
