"""A node as a test sees it: a real daemon in a process of its own, a real mount, a local store that can be lost."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.control.client import ControlClient
from holdfast.control.messages import Status
from holdfast.errors import DaemonUnreachableError, MountpointError
from holdfast.mount import covered_directory, mountpoint
from tests.support.kernel.needs import need_takeover
from tests.support.processes.forked_programs import DAEMON, ForkedProcess, forked_daemon

PASSTHROUGH = "HOLDFAST_TEST_PASSTHROUGH"
"""The environment variable with which tests try daemons that serve all data themselves: ``no``."""
_START_SECONDS = 60.0
_END_SECONDS = 60.0
_FAULT = re.compile(r" (?:ERROR|CRITICAL) |Traceback|Fatal Python error|^  File|most recent call first")


def wait_until(condition: Callable[[], bool], seconds: float = _END_SECONDS) -> None:
    """Ask again until ``condition`` holds; fail after a minute, or so many seconds.

    A daemon that dies while it is asked is asked again: another one takes its place.
    """
    deadline = time.monotonic() + seconds
    while True:
        problem = "it did not come to pass"
        try:
            if condition():
                return
        except DaemonUnreachableError as silence:
            problem = str(silence)
        assert time.monotonic() < deadline, problem
        select.select([], [], [], 0.01)


def _kill(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [])
    finally:
        os.close(pidfd)


def _has_died(pid: int) -> bool:
    """Say whether a child is dead: its parent has it until it asks for the child's end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "XZ"
    except (FileNotFoundError, ProcessLookupError):
        return True


class StartError(AssertionError):
    """The daemon said why it could not start."""


def settle(directory: Path) -> None:
    """Wait until the store has been told of what was deleted in ``directory``."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Node:
    """One daemon with its mount. ``directory`` holds everything that is this node's; the stores are elsewhere."""

    forks = False
    """Fork a daemon that nobody supervises from a process that has loaded the program."""

    def __init__(self, directory: Path, checkpoints: str, blobs: str, **settings: Any) -> None:
        self.directory = directory
        self.mountpoint = directory / "mount"
        self.store = directory / "store"
        self.socket = directory / "run" / "control.sock"
        self.log = directory / "daemon.log"
        self.settings = {
            "mount.mountpoint": self.mountpoint,
            "store.directory": self.store,
            "checkpoints.url": checkpoints,
            "blobs.url": blobs,
            "control.socket": self.socket,
            "cache.min_free_share": 0.0,
            "cache.min_free_bytes": 0,
            "mount.passthrough": os.environ.get(PASSTHROUGH, "yes") != "no",
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        self.environment: dict[str, str] = {}
        self.faults: list[str] = []
        """The names of the daemon's faults (``tests.support.daemons.faulty``), from its next start on."""
        self.prefix: list[str] = []
        """A command that runs the daemon, as ``setpriv`` does."""
        self.supervised = False
        """True if ``holdfast.supervision.supervisor`` starts the daemon, and starts it again when it dies."""
        self.outlives_daemon = True
        """True if the test relies on a supervised mount that outlives its daemon: before Linux 6.9 it is skipped."""
        self.watchdog_seconds = 30.0
        """For how long the supervisor lets a daemon be silent."""
        self.expected_faults: list[str] = []
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.mountpoint.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoints(self) -> Path:
        """The checkpoint zone in the mount."""
        return self.mountpoint / "checkpoints"

    @property
    def blobs(self) -> Path:
        """The blob zone in the mount."""
        return self.mountpoint / "blobs"

    @property
    def work(self) -> Path:
        """The base of the working directories."""
        return self.mountpoint / "work"

    @property
    def pid(self) -> int:
        """The daemon's process."""
        found: list[int] = []

        def has_one() -> bool:
            found.append(self.pid_now())  # what is returned: at a second look there may be none
            return found[-1] != 0

        wait_until(has_one)
        return found[-1]

    def pid_now(self) -> int:
        """Return the daemon's process; 0 while its supervisor has none."""
        assert self._process is not None
        if not self.supervised:
            return self._process.pid
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return next((pid for pid in map(int, children) if not _has_died(pid)), 0)

    @property
    def program(self) -> list[str]:
        """The daemon's module, and with faults its first argument, which names them."""
        return ["tests.support.daemons.faulty", ",".join(self.faults)] if self.faults else [DAEMON]

    def start(self, **settings: Any) -> Node:
        """Start the daemon; return when the mount answers. Raises ``StartError`` with the daemon's own words."""
        if self.supervised and self.outlives_daemon and "no_takeover" not in self.faults:
            need_takeover()
        merged = {**self.settings, **{key.replace("__", "."): value for key, value in settings.items()}}
        options = [word for key, value in merged.items() for word in ("--set", f"{key}={value}")]
        reader, writer = os.pipe()
        with self.log.open("ab") as log:
            self._process = self._launch(options, writer, log.fileno())
        os.close(writer)
        with open(reader) as channel:
            ready, _, _ = select.select([channel], [], [], _START_SECONDS)
            line = channel.readline() if ready else ""
        message = json.loads(line) if line else {"ready": False, "message": f"no word; {self.log.read_text()[-2000:]}"}
        if not message["ready"]:
            self._process.wait(_END_SECONDS)
            raise StartError(message["message"])
        return self

    def _launch(self, options: list[str], writer: int, log: int) -> subprocess.Popen[bytes] | ForkedProcess:
        environment = {**os.environ, **self.environment}
        if self.forks and not self.supervised and not self.prefix:
            module, *before = self.program
            daemon = forked_daemon(module, [*before, *options], environment, writer, log)
            if daemon is not None:
                return daemon
        command = [sys.executable, "-m", *self.program]
        if self.supervised:
            supervisor = [
                "holdfast.supervision.supervisor",
                "--directory",
                str(self.socket.parent),
                "--mountpoint",
                str(self.mountpoint),
            ]
            supervisor += [
                "--watchdog",
                str(self.watchdog_seconds),
                *(["--kept"] if "mount.keeper" in self.settings else []),
            ]
            command = [sys.executable, "-m", *supervisor, "--ready-fd", str(writer), "--", *command]
        else:
            command += ["--ready-fd", str(writer)]
        command = [*self.prefix, *command, *options]
        return subprocess.Popen(command, pass_fds=[writer], stdout=log, stderr=log, env=environment)

    def stop(self) -> None:
        """Unmount; return when the daemon has ended in order."""
        mountpoint.unmount(str(self.mountpoint))
        self._wait()

    def terminate(self) -> None:
        """Let the daemon stop on SIGTERM."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._wait()

    def kill(self) -> None:
        """SIGKILL the daemon and take the dead mount away, as an operator would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_END_SECONDS)
        mountpoint.detach(str(self.mountpoint))

    def crashed(self) -> None:
        """Wait for a death that the test has brought about, and take the dead mount away."""
        assert self._process is not None
        assert self._process.wait(_END_SECONDS) == -signal.SIGKILL
        mountpoint.detach(str(self.mountpoint))

    def answers(self) -> bool:
        """Say whether the daemon that lives now serves its control socket."""
        with socket.socket(socket.AF_UNIX) as channel:
            try:
                channel.connect(str(self.socket))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            listener, _, _ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(listener) == self.pid

    @property
    def session(self) -> Path:
        """Where the next daemon finds what it must know."""
        return self.socket.with_suffix(".session")

    def kill_daemon(self) -> None:
        """SIGKILL the daemon alone; its supervisor starts another one."""
        _kill(self.pid)

    def signal_supervisor(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor alone."""
        assert self.supervised
        assert self._process is not None
        self._process.send_signal(number)

    def kill_orphan(self) -> None:
        """SIGKILL a daemon whose supervisor is dead."""
        assert self._process is not None
        pid = self.status().pid
        self._process.wait(_END_SECONDS)
        _kill(pid)

    def unmount(self) -> None:
        """Unmount, whether anybody serves the mount or not."""
        mountpoint.unmount(str(self.mountpoint))

    def wait_end(self) -> None:
        """Wait until the daemon, or its supervisor, has ended, however it did."""
        assert self._process is not None
        self._process.wait(_END_SECONDS)

    def lose_disk(self) -> None:
        """The node's local store is gone."""
        shutil.rmtree(self.store)

    def client(self) -> ControlClient:
        """Return a client of the control socket."""
        return ControlClient(self.socket)

    def status(self) -> Status:
        """Return the daemon's status."""
        with self.client() as client:
            return client.status()

    def requests(self) -> dict[str, int]:
        """Return how many requests of each kind went to the stores in this run."""
        return dict(self.status().counters["requests"])

    def backing(self, path: Path) -> Path:
        """Return where the file of ``path``, a path in the mount, stands in the local store, once nobody has it open.

        The kernel tells the daemon of the last close a moment after close(2) has returned.
        """
        if self._process is not None and self._process.poll() is None and os.path.lexists(path):
            with self.client() as client:
                wait_until(lambda: not client.entry(str(path)).open)
        return self.store / "tree" / path.relative_to(self.mountpoint)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the fields of the events of this run, all or of one kind."""
        with self.client() as client:
            return [event.fields for event in client.events() if kind in (None, event.kind)]

    def wait_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for an event of ``kind`` with these fields; return all of its fields."""
        with self.client() as client:
            for event in client.follow_events():
                if event.kind == kind and fields.items() <= event.fields.items():
                    return event.fields
        raise AssertionError("the stream of events ended")

    def wait_digest(self, path: Path) -> None:
        """Wait until the index knows the digest of ``path``, a path in the mount."""
        with self.client() as client:
            wait_until(lambda: client.entry(str(path)).digest is not None)

    def clean_up(self) -> None:
        """Leave nothing behind, whatever happened; then complain about faults in the log."""
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except (MountpointError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(_END_SECONDS)
        if mountpoint.mount_at(str(self.mountpoint)) is not None:
            mountpoint.detach(str(self.mountpoint))
        if self.mountpoint.is_dir():
            covered_directory.release(str(self.mountpoint))  # or nobody could remove it
        faults = [line for line in self._log_lines() if _FAULT.search(line)]
        unexpected = [line for line in faults if not any(word in line for word in self.expected_faults)]
        assert not unexpected, "the daemon's log has faults:\n" + "\n".join(unexpected[:20])

    def _log_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []

    def _seen_by(self) -> str:
        """Name processes in whose mount namespace the mount is: a copy there keeps the file system and its daemon alive."""
        seen = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f" {self.mountpoint} " in (process / "mountinfo").read_text():
                    seen.append(f"{process.name} ({(process / 'comm').read_text().strip()})")
        return ", ".join(seen[:10])

    def _wait(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired as problem:
            problem.add_note(f"the mount is still seen by {self._seen_by() or 'no process'}")
            raise
        assert self._process.returncode == 0, f"the daemon ended with {self._process.returncode}"
