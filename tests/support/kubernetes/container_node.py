"""A node with containerd, in namespaces of its own: with their first process all containers, shims and mounts end.

Its own image has no programs but the one that keeps a pod's namespaces. Containers get the system's programs, the tests'
Python and this checkout from the node, to be read. With ``$HOLDFAST_TEST_IMAGE``, an archive as ``systemd.kubernetes.image``
makes it, Holdfast's own pods have that image, and nothing of the node's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.namespaces import Identity, Namespaces
from tests.cluster.node_init import Plan
from tests.support.daemons.node import wait_until
from tests.support.kubernetes.container_runtime import Pod, PodSpec, Runtime, Volume
from tests.support.kubernetes.images import APPLICATION_IMAGE, write_application_image
from tests.support.tools.cache import cache_directory

_HOST = "container-node"
_CHECKOUT = Path(__file__).parents[3]
_TOOLS = ("containerd", "ctr", "containerd-shim-runc-v2", "runc", "gcc")
_CGROUPS = Path("/sys/fs/cgroup")
_CONFIG = """\
version = 2
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
"""
_PASSED_ON = ("PATH", "PYTHONPYCACHEPREFIX", "LANG")


def need_containers() -> None:
    """Skip the test where there can be no containers."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_path()) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: Debian's packages containerd, runc and gcc")
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.access(_CGROUPS, os.W_OK):
        pytest.skip("needs root, /dev/fuse and cgroups of its own")


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class ContainerNode:
    """The node. ``shared`` is its directory from which mounts pass into containers and back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shared = directory / "shared"
        self.shared.mkdir()
        self._log = directory / "node.log"
        plan = Plan(_HOST, [], {}, {}, {"/etc/hosts": [f"127.0.0.1 {_HOST}"]}, "", "")
        self._namespaces = Namespaces(plan, self._log)
        self._containerd: subprocess.Popen[bytes] | None = None
        self._installed = Path(os.environ["HOLDFAST_TEST_IMAGE"]) if "HOLDFAST_TEST_IMAGE" in os.environ else None
        self.runtime = Runtime(directory / "containerd.sock", APPLICATION_IMAGE, f"/{directory.name}", directory / "logs")

    def start(self) -> None:
        """Start containerd, and give it the image."""
        config, image = self.directory / "containerd.toml", self.directory / "image.tar"
        snapshotter = "native" if self._installed is None else "overlayfs"  # native: a copy of the image for each container
        config.write_text(_CONFIG.format(directory=self.directory, image=APPLICATION_IMAGE, snapshotter=snapshotter))
        write_application_image(image)
        self._namespaces.start()
        for how in ("--bind", "--make-private", "--make-shared"):
            self._does("mount", how, str(self.shared), *([str(self.shared)] if how == "--bind" else []))
        with self._log.open("ab") as log:
            self._containerd = subprocess.Popen(self._inside("containerd", "--config", str(config)), stdout=log, stderr=log)
        socket = self.directory / "containerd.sock"
        wait_until(lambda: socket.exists() or self._has_ended())
        assert not self._has_ended(), self._log.read_text()[-3000:]
        for archive in filter(None, (image, self._installed)):
            self._does("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive))

    @property
    def driver_command(self) -> list[str]:
        """The command of the driver of volumes, in Holdfast's own pods."""
        if self._installed is None:
            return [sys.executable, "-c", "from holdfast.csi import run; run()"]
        return ["/usr/lib/holdfast/bin/holdfast-csi"]

    def run_own(self, spec: PodSpec) -> Pod:
        """Start one of Holdfast's own pods."""
        if self._installed is None:
            return self.run(spec)
        with tarfile.open(self._installed) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            (name,) = json.load(manifest)[0]["RepoTags"]
        return Pod(self.runtime, replace(spec, image=name))

    def run(self, spec: PodSpec) -> Pod:
        """Start a pod that has the node's programs, and this checkout."""
        volumes = [Volume(path, read_only=True) for path in (Path("/usr"), cache_directory(), _CHECKOUT)]
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_CHECKOUT)]))
        wanted = replace(spec, volumes=[*volumes, *spec.volumes], environment={**environment, **spec.environment})
        return Pod(self.runtime, wanted)

    def seen(self, path: Path) -> Path:
        """Return a path by which this process reaches ``path`` of the node, with what is mounted there."""
        return self._namespaces.seen_from_outside(path)

    def kill(self, pid: int) -> None:
        """SIGKILL a process, by the number that it has on the node."""
        self._does("kill", "-KILL", str(pid))

    def end(self) -> None:
        """End all that runs on the node."""
        self._namespaces.kill()
        if self._containerd is not None:
            self._containerd.wait()
        for pattern in ("", "*/"):  # one hierarchy (version 2), or one for each controller
            for group in sorted(_CGROUPS.glob(f"{pattern}{self.directory.name}/**/"), reverse=True):
                group.rmdir()

    def _has_ended(self) -> bool:
        return self._containerd is not None and self._containerd.poll() is not None

    def _inside(self, *command: str) -> list[str]:
        root = Identity(0, 0, (), "/", {"PATH": _path()})
        return self._namespaces.command(root, command)

    def _does(self, *command: str) -> None:
        done = subprocess.run(self._inside(*command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"


@contextmanager
def container_node() -> Iterator[ContainerNode]:
    """Run a node for the duration of the block, in a directory whose path is short enough for sockets."""
    need_containers()
    directory = Path(tempfile.mkdtemp(prefix="hf-pods-", dir=os.environ.get("HOLDFAST_TEST_DIRECTORY", "/var/tmp")))
    directory.chmod(0o755)
    node = ContainerNode(directory)
    try:
        node.start()
        yield node
    finally:
        node.end()
        subprocess.run(["chattr", "-R", "-f", "-i", node.shared], check=False)  # as a daemon has made its mountpoint
        shutil.rmtree(directory)
