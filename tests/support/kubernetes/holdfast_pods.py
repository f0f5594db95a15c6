"""The chart's pods on a node with containers, with their commands and rights, and pods that use the mount."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.control.client import ControlClient
from holdfast.control.messages import Status
from holdfast.errors import HoldfastError
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.container_node import ContainerNode
from tests.support.kubernetes.container_runtime import Pod, PodSpec, Propagation, Volume
from tests.support.kubernetes.driver import CsiCalls
from tests.support.load.watching_pod import Watched, watching

_FAULT = re.compile(r" (?:ERROR|CRITICAL) |Traceback|Fatal Python error")
_NODE_NAME = "a-node"


class HoldfastPods:
    """Daemon, keeper and driver of ``node``, as many of each as a test starts."""

    def __init__(self, node: ContainerNode) -> None:
        self._node = node
        self.above = node.shared / "mnt"
        self.mountpoint = self.above / "holdfast"
        self.remote = node.directory / "remote"
        self._run = node.directory / "run"
        self._cache = node.directory / "cache"
        self.books = node.directory / "books"
        for directory in (self.above, self.remote, self._run, self._cache, self.books):
            directory.mkdir(parents=True)
        self._socket = self._run / "control.sock"
        self.pods_socket = self._run / "pods/pods.sock"
        self.csi = CsiCalls(node.shared / "kubelet")
        self._own: list[Pod] = []
        self._names = 0

    def keeper(self) -> Pod:
        """Start a keeper; return when it is ready."""
        command = ["holdfast", "keeper", str(self._run / "keeper")]
        pod = self._run_own(PodSpec(self._name("keeper"), command, [Volume(self._run)], restricted=True))
        wait_until(lambda: "ready in" in pod.log)
        return pod

    def daemon(self, *, host_pid: bool = True, supervise: bool = True, keeper: bool = True) -> Pod:
        """Start a daemon; return when it answers."""
        command = [
            "holdfast",
            "mount",
            str(self.mountpoint),
            "--create",
            "--foreground",
            *(["--supervise"] if supervise else []),
        ]
        command += [f"--store={self._cache}/store", f"--socket={self._socket}"]
        command += [f"--keeper={self._run}/keeper"] if keeper else []
        command += [f"--{name}=file://{self.remote}/{name}" for name in ("checkpoints", "blobs")]
        pod = self._run_own(
            PodSpec(
                self._name("daemon"),
                command,
                [Volume(self.above, Propagation.BIDIRECTIONAL), *map(Volume, (self._cache, self._run, self.remote))],
                {"HOLDFAST_HOLDINGS__NODE": _NODE_NAME, "HOLDFAST_CONTROL__PODS_SOCKET": str(self.pods_socket)},
                privileged=True,
                host_pid=host_pid,
            )
        )
        self.wait_ready(pod)
        return pod

    def wait_ready(self, pod: Pod, but_not: int = 0) -> None:
        """Wait until a daemon answers in ``pod``, another one than the process ``but_not``."""

        def is_there() -> bool:
            assert pod.runs, pod.log[-3000:]
            try:
                return self.status().pid != but_not
            except HoldfastError:
                return False

        wait_until(is_there)

    def driver(self) -> Pod:
        """Start a driver of volumes; return when it answers."""
        command = [*self._node.driver_command, f"--mountpoint={self.mountpoint}"]
        command += [f"--kubelet={self.csi.kubelet}", f"--socket={self._socket}", f"--pods-socket={self.pods_socket}"]
        volumes = [Volume(self.above, Propagation.HOST_TO_CONTAINER), Volume(self.csi.kubelet, Propagation.BIDIRECTIONAL)]
        environment = {"NODE_NAME": _NODE_NAME}
        pod = self._run_own(PodSpec(self._name("csi"), command, [*volumes, Volume(self._run)], environment, privileged=True))
        wait_until(self.csi.answers)
        return pod

    def application(self, *volumes: Volume, socket: bool = False, uid: int = 0, **environment: str) -> Pod:
        """Start a pod that does nothing by itself; with the ``socket`` for pods it knows where that is."""
        shared = [*volumes, *([Volume(self.pods_socket.parent)] if socket else [])]
        if socket:
            environment["HOLDFAST_SOCKET"] = str(self.pods_socket)
        return self._node.run(PodSpec(self._name("application"), ["sleep", "infinity"], shared, environment, uid=uid))

    def spark(self, command: Sequence[str], *directories: Path) -> Pod:
        """Start a pod in which Spark works with the mount, and with directories of its own, by the socket for pods."""
        volumes = [Volume(self.mountpoint), *map(Volume, (self.pods_socket.parent, *directories))]
        volumes.append(Volume(Path("/etc"), read_only=True))  # for Java
        return self._node.run(PodSpec(self._name("spark"), command, volumes, {"HOLDFAST_SOCKET": str(self.pods_socket)}))

    def watching(self, directory: Path, volume: Volume) -> tuple[Pod, Watched]:
        """Start a pod that works in ``directory`` all the time; return when its work goes on."""
        name = self._name("watching")
        book = self.books / name
        pod = self._node.run(PodSpec(name, watching(directory, book), [volume, Volume(self.books)]))
        watched = Watched(book)
        wait_until(lambda: not pod.runs or len(watched.lines) > 0)
        assert pod.runs, pod.log
        watched.goes_on()
        return pod, watched

    def client(self) -> ControlClient:
        """Return a client of the daemon's."""
        return ControlClient(self._socket)

    def status(self) -> Status:
        """Return what the daemon says."""
        with self.client() as client:
            return client.status()

    def is_kept(self) -> bool:
        """Say whether the mount outlives its daemon."""
        return not any("the mount ends with" in problem for problem in self.status().problems)

    def below(self) -> list[str]:
        """Return what stands in the directory below the mount, which is all that this process sees there."""
        return os.listdir(self.mountpoint)

    def seen(self, path: Path) -> Path:
        """Return where this process finds a path of the mount."""
        return self._node.seen(path)

    def kill_daemon(self, pod: Pod) -> None:
        """SIGKILL the daemon alone; its supervisor starts another one."""
        self._replaced(pod, lambda killed: self._node.kill(killed))

    def kill_container(self, pod: Pod) -> None:
        """SIGKILL the first process of the daemon's container, and start another one in the same pod."""
        self._replaced(pod, lambda _: self._restart(pod))

    def kill(self, pod: Pod) -> None:
        """SIGKILL the first process of a pod's container; return when that has ended."""
        self._node.kill(pod.first_pid)
        wait_until(lambda: not pod.runs)

    def _restart(self, pod: Pod) -> None:
        self.kill(pod)
        pod.restart_container()

    def _replaced(self, pod: Pod, kill: Callable[[int], None]) -> None:
        before = self.status().pid
        kill(before)
        self.wait_ready(pod, but_not=before)

    def faults(self) -> list[str]:
        """Return the lines that tell of a fault in the logs of Holdfast's own pods."""
        return [line for pod in self._own for line in pod.log.splitlines() if _FAULT.search(line)]

    def _run_own(self, spec: PodSpec) -> Pod:
        pod = self._node.run_own(spec)
        self._own.append(pod)
        return pod

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"
