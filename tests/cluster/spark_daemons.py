"""Spark's own daemons, the master and the workers, as processes on the nodes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.cluster.settings import MASTER, Settings
from tests.support.daemons.node import wait_until

MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
MASTER_ARGUMENTS = ("--host", MASTER, "--port", "0", "--webui-port", "0")
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER_PAGE = re.compile(r"MasterWebUI.* started at (http://\S+)")
_START_SECONDS = 300.0  # a JVM on a machine with much else to do
_REGISTERED = "Successfully registered with master"


class SparkDaemon:
    """A process with a log. ``command`` enters a node."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0

    def start(self) -> None:
        """Start it; ``wait_until_in_order`` tells when it has started."""
        self._from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_in_order(self) -> None:
        """Return once it is in order."""
        wait_until(self._is_in_order, _START_SECONDS)

    def reap(self) -> None:
        """Wait for the end of a process that has been killed."""
        if self._process is not None:
            self._process.wait()

    def said(self) -> str:
        """Return what it has logged since its start."""
        with self._log.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def _is_in_order(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended at once:\n{self.said()[-3000:]}"
        return self._has_started()

    def _has_started(self) -> bool:
        raise NotImplementedError


class Worker(SparkDaemon):
    """A standalone worker."""

    @staticmethod
    def arguments(settings: Settings) -> tuple[str, ...]:
        """Return its arguments, without the master."""
        return ("--cores", str(settings.cores), "--memory", settings.worker_memory, "--webui-port", "0")

    def _has_started(self) -> bool:
        return _REGISTERED in self.said()


class Master(SparkDaemon):
    """A standalone master."""

    def _has_started(self) -> bool:
        return bool(_MASTER_URL.search(self.said()) and _MASTER_PAGE.search(self.said()))

    @property
    def url(self) -> str:
        """Where workers and drivers find it."""
        return _found(_MASTER_URL, self.said())

    @property
    def page(self) -> str:
        """Its page for browsers."""
        return _found(_MASTER_PAGE, self.said())


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    assert match is not None
    return match[1]
