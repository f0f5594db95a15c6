"""A node of Kubernetes on this machine: containerd and kubelet in namespaces of their own, with Kubernetes' own paths.

``/mnt``, ``/var/lib`` and ``/var/log`` are the node's, ``/run`` and ``/etc`` too (``tests.cluster.node_init``); mounts below
``/mnt`` and kubelet's directory pass into containers and back. With the first process of the namespaces all of it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.cluster.namespaces import Identity, Namespaces
from tests.cluster.node_init import Plan
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.programs import debian_files, program
from tests.support.processes.memory import Memory, memory

_CGROUPS = Path("/sys/fs/cgroup")
_SETTLED = {  # what kubelet would set for the whole machine
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_SHARED = ("/mnt", "/var/lib/kubelet")
_SHARES = {"cpu.shares": 1024, "cpu.weight": 100}
"""A cgroup's files with its share of the processors, in version 1 and 2, and the number that is one process's share."""
_AS_PROCESSES = 6
"""A cluster's share: beside much other work all of its pods would else have that of one process, and time out."""
_SPARK = "spark:x:185:0::/tmp:/bin/sh"  # Java wants to know the user's name
_CONTAINERD = """\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{directory}/cni"
"""


class KubeletNode:
    """The node ``number`` of a cluster, at the address 10.99.0.NUMBER, its pods at 10.88.NUMBER.x."""

    def __init__(self, number: int, directory: Path, programs: Path, image: str) -> None:
        self.name = f"node{number}"
        self.address = f"10.99.0.{number}"
        self.directory = directory
        self._number = number
        self._programs = programs
        self._image = image
        self._cgroup = f"{directory.parent.name}/{self.name}"
        self._log = directory / "node.log"
        plan = Plan(self.name, [], {}, {}, {"/etc/hosts": [f"{self.address} {self.name}"], "/etc/passwd": [_SPARK]}, "", "")
        self._namespaces = Namespaces(plan, self._log)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, access: Path, images: list[Path]) -> None:
        """Start containerd, give it images, and start kubelet with the file of its accesses."""
        for name in ("mnt", "log", "lib", "cni", "proc"):
            (self.directory / name).mkdir(parents=True)
        self._write_files()
        self._namespaces.start()
        for name, at in (("lib", "/var/lib"), ("log", "/var/log"), ("mnt", "/mnt")):
            self.does("mount", "--bind", str(self.directory / name), at)
        self.does("mkdir", "-p", "/var/lib/kubelet")
        self.does("mount", "--bind", "/var/lib/kubelet", "/var/lib/kubelet")
        for at in _SHARED:
            self.does("mount", "--make-private", at)
            self.does("mount", "--make-shared", at)
        for name in _SETTLED:
            self.does("mount", "--bind", str(self._settled(name)), f"/proc/sys/{name}")
        self.does("mount", "-t", "proc", "proc", str(self.directory / "proc"))  # whole: user namespaces have none without it
        self._make_cgroups()
        self._starts("containerd", str(program("containerd")), "--config", str(self.directory / "containerd.toml"))
        socket = self.seen(Path("/run/containerd/containerd.sock"))
        wait_until(socket.exists)
        for image in images:
            self.ctr("images", "import", str(image))
        self._start_kubelet(access)

    def restart_kubelet(self, access: Path) -> None:
        """SIGKILL kubelet, and start another one."""
        commands = self._commands().items()
        (pid,) = (pid for pid, command in commands if command.startswith(str(self._programs / "kubelet")))
        self.does("kill", "-KILL", str(pid))
        wait_until(lambda: pid not in self._commands())
        self._start_kubelet(access)

    def ctr(self, *words: str) -> None:
        """Run a command of containerd's own client."""
        self.does("ctr", "--address=/run/containerd/containerd.sock", "--namespace=k8s.io", *words)

    def does(self, *command: str) -> str:
        """Run a command on the node, as root; return what it prints."""
        done = subprocess.run(self._inside(*command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def processes(self, pod: str) -> dict[int, str]:
        """Return the processes of the pod with this uid, and their command lines."""
        proc = self.seen(Path("/proc"))
        found = {}
        for pid, command in self._commands().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                if pod in (proc / f"{pid}/cgroup").read_text():
                    found[pid] = command
        return found

    def memory(self, pid: int) -> Memory:
        """Return what a process has in memory."""
        return memory(pid, self.seen(Path("/proc")))

    def kill_pod(self, pod: str) -> None:
        """SIGKILL all processes of the containers of the pod with this uid; return when they are gone."""
        found = {pid for pid, command in self.processes(pod).items() if command != "/pause"}
        self.does("sh", "-c", 'kill -KILL "$@" || true', "kill", *map(str, found))  # some die of another one's death
        wait_until(lambda: found.isdisjoint(self.processes(pod)))

    def seen(self, path: Path) -> Path:
        """Return a path by which this process reaches ``path`` of the node, with what is mounted there."""
        return self._namespaces.seen_from_outside(path)

    def below(self, path: Path) -> Path:
        """Return where this process finds what stands below the mounts in ``/mnt`` of the node."""
        return self.directory / path.relative_to("/")

    def end(self) -> None:
        """End all that runs on the node."""
        self._namespaces.kill()
        for process in self._processes:
            process.wait()
        for pattern in ("", "*/"):  # one hierarchy (version 2), or one for each controller
            for group in sorted(_CGROUPS.glob(f"{pattern}{self._cgroup}/**/"), reverse=True):
                group.rmdir()
            for group in _CGROUPS.glob(f"{pattern}{self._cgroup.split('/')[0]}/"):
                with suppress(OSError):  # another node's are still in it
                    group.rmdir()

    def _commands(self) -> dict[int, str]:
        found = {}
        for directory in self.seen(Path("/proc")).glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(directory.name)] = (directory / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        return found

    def _start_kubelet(self, access: Path) -> None:
        options = [f"--config={self.directory}/kubelet.yaml", f"--kubeconfig={access}", f"--hostname-override={self.name}"]
        options += ["--root-dir=/var/lib/kubelet", f"--node-ip={self.address}", f"--cert-dir={self.directory}/certificates"]
        self._starts("kubelet", str(self._programs / "kubelet"), *options)

    def _write_files(self) -> None:
        plugins = debian_files("containernetworking-plugins") / "usr/lib/cni"
        text = _CONTAINERD.format(directory=self.directory, image=self._image, plugins=plugins)
        (self.directory / "containerd.toml").write_text(text)
        (self.directory / "cni/pods.conflist").write_text(json.dumps(self._network()))
        (self.directory / "kubelet.yaml").write_text(json.dumps(self._kubelet()))
        for name, value in _SETTLED.items():
            self._settled(name).write_text(f"{value}\n")

    def _settled(self, name: str) -> Path:
        return self.directory / name.replace("/", "_")

    def _network(self) -> dict[str, object]:
        ranges = [[{"subnet": f"10.88.{self._number}.0/24"}]]
        addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": f"pods{self._number}", "isGateway": True, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failSwapOn": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "resolvConf": "",
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "address": self.address,
            "port": 10250 + self._number,
            "healthzPort": 0,
        }

    def _make_cgroups(self) -> None:
        """Make the cgroup below which kubelet has its pods', in each hierarchy."""
        for root in [_CGROUPS] if (_CGROUPS / "cgroup.procs").exists() else [p for p in _CGROUPS.iterdir() if p.is_dir()]:
            for group in (root / self._cgroup.split("/")[0], root / self._cgroup):
                group.mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: a new one has none, and takes no process
                    if (group / name).exists() and not (group / name).read_text().strip():
                        (group / name).write_text((group.parent / name).read_text())
            for name, usual in _SHARES.items():
                if (share := root / self._cgroup.split("/")[0] / name).exists():
                    share.write_text(str(usual * _AS_PROCESSES))

    def _starts(self, name: str, *command: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(self._inside(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)

    def _inside(self, *command: str) -> list[str]:
        return self._namespaces.command(Identity(0, 0, (), "/", {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}), command)
