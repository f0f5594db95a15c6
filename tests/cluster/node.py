"""One node of a cluster: its name spaces, daemon and worker, and what may befall it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.control.client import ControlClient
from tests.cluster import plans
from tests.cluster.disks import Disk
from tests.cluster.links import Link
from tests.cluster.namespaces import Identity, Namespaces, kill_process
from tests.cluster.plans import Accounts
from tests.cluster.settings import CONFIGURATION, CONTROL_SOCKET, MOUNTPOINT, Settings
from tests.cluster.spark_daemons import EXECUTOR, WORKER, Worker
from tests.support.daemons.node import wait_until


@dataclass(frozen=True)
class Surroundings:
    """What a node finds. ``master_url`` is empty without Spark; ``store_options`` hold the stores' credentials."""

    master_url: str
    urls: Mapping[str, str]
    store_options: Mapping[str, str]
    shared: Path
    accounts: Accounts


class ClusterNode:
    """A node. ``start`` brings up all of it; ``kill`` is a power failure, after which ``start`` finds the disk as it was."""

    def __init__(self, number: int, settings: Settings, directory: Path, link: Link, around: Surroundings) -> None:
        self.name = settings.name(number)
        self.address = settings.address(number)
        self.link = link
        self.directory = directory
        self.disk = Disk(directory / "disk", settings.disk_bytes)
        self.daemon_log = directory / "daemon.log"
        self._settings = settings
        self._around = around
        self._home = directory / "home"
        self._namespaces: Namespaces | None = None
        self._worker: Worker | None = None

    def start(self) -> None:
        """Bring up name spaces, daemon and mount, and then a worker if there is Spark (see ``wait_for_worker``)."""
        self.boot()
        self.mount()
        if self._around.master_url:
            self.start_worker()

    def boot(self) -> None:
        """Bring up the name spaces, and the line to the store."""
        accounts = self._around.accounts
        self.disk.make()
        self._home.mkdir(parents=True, exist_ok=True)
        os.chown(self._home, accounts.uid, accounts.gid)
        self.link.open()
        files = {
            str(CONFIGURATION): self._daemon_configuration(),
            str(plans.CONF / "spark-defaults.conf"): plans.spark_defaults(self._settings, self._around.master_url),
        }
        plan = plans.plan(self.name, self.address, self._settings, accounts, files, self.disk.path, self.disk.image)
        self._namespaces = Namespaces(plan, self.directory / "first-process.log")
        self._namespaces.start()

    def _daemon_configuration(self) -> tuple[str, int]:
        options = {**self._around.store_options, "endpoint": self.link.endpoint}
        store = self.disk.path / "store"
        return plans.daemon_configuration(self._settings, self._around.accounts, store, self._around.urls, options)

    def set_options(self, options: tuple[tuple[str, str], ...]) -> None:
        """Configure the daemon with these ``Settings.options`` from now on; one that runs reads them at once."""
        self._settings = replace(self._settings, options=options)
        if self.lives:
            text, _ = self._daemon_configuration()
            self.seen_from_outside(CONFIGURATION).write_text(text)
            with self.client() as client:
                client.reload()

    def mount(self) -> None:
        """Start the daemon, under its supervisor; return when the mount answers. Raises ``CalledProcessError``."""
        self.run("holdfast", "mount", "--supervise", "--set", f"log.file={self.daemon_log}", as_root=True)

    def start_worker(self) -> None:
        """Start Spark's worker as the user ``spark``."""
        command = self.command("spark-class", WORKER, *Worker.arguments(self._settings), self._around.master_url)
        self._worker = Worker(command, self.directory / "worker.log")
        self._worker.start()

    def wait_for_worker(self) -> None:
        """Return when the master knows the worker."""
        assert self._worker is not None
        self._worker.wait_until_in_order()

    def kill(self) -> None:
        """The node loses its power: every process and the mount are gone at once, and the line to the store."""
        if self._namespaces is not None:
            self._namespaces.kill()
        if self._worker is not None:
            self._worker.reap()
        self.link.cut()

    def lose_disk(self) -> None:
        """What the node has kept is gone, too; it must not run."""
        self.disk.lose()

    @property
    def lives(self) -> bool:
        """Whether the node runs."""
        return self._namespaces is not None and self._namespaces.lives

    @property
    def first_pid(self) -> int:
        """The node's first process, as it is called outside."""
        return self._inside.first_pid

    def identity(self, *, as_root: bool = False) -> Identity:
        """Return who runs commands here: the user ``spark``, or root."""
        accounts = self._around.accounts
        variables = plans.environment(self.address, self._home, self.name)
        if as_root:
            return Identity(0, 0, (), str(self._around.shared), variables)
        return Identity(accounts.uid, accounts.gid, (accounts.holdfast_gid,), str(self._around.shared), variables)

    def command(self, *arguments: str, as_root: bool = False) -> list[str]:
        """Return the command that runs ``arguments`` on the node, in the common directory."""
        return self._inside.command(self.identity(as_root=as_root), arguments)

    def run(self, *arguments: str, as_root: bool = False) -> str:
        """Run a command on the node; return what it says. Raises ``AssertionError`` with its words when it fails."""
        done = subprocess.run(self.command(*arguments, as_root=as_root), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.name}: {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    def client(self) -> ControlClient:
        """Return a client of the node's daemon, for a process outside of the node."""
        return ControlClient(self._inside.seen_from_outside(CONTROL_SOCKET))

    def seen_from_outside(self, path: Path) -> Path:
        """Return a path by which this process reaches ``path`` as it is on the node."""
        return self._inside.seen_from_outside(path)

    @property
    def mountpoint(self) -> Path:
        """The mount, for a process outside of the node."""
        return self.seen_from_outside(MOUNTPOINT)

    def kill_daemon(self) -> None:
        """SIGKILL the daemon; its supervisor starts another one."""
        with self.client() as client:
            pid = client.status().pid
        self.run("kill", "-KILL", str(pid), as_root=True)

    def kill_worker(self) -> None:
        """SIGKILL the worker; return when its executors have noticed and ended."""
        self.kill_programs(WORKER)
        assert self._worker is not None
        self._worker.reap()
        wait_until(lambda: not self._inside.processes(EXECUTOR))

    def kill_executors(self) -> int:
        """SIGKILL the executors, whose worker starts new ones; return how many there were."""
        return self.kill_programs(EXECUTOR)

    def kill_programs(self, of_class: str) -> int:
        """SIGKILL the JVMs that run a class; return how many there were."""
        pids = self._inside.processes(of_class)
        for pid in pids:
            kill_process(pid)
        return len(pids)

    @property
    def _inside(self) -> Namespaces:
        assert self._namespaces is not None, f"{self.name} was not started"
        return self._namespaces
