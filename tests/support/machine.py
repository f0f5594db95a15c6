"""A bare Debian of this machine's release, with systemd as its first process, in a container.

Its packages come once, by debootstrap(8), into ``$HOLDFAST_CACHE``: what a minimal system with systemd has, and what the
Debian package of Holdfast depends on, so that a test installs without a network.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.node import wait_until

_TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "dpkg-deb")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FUSE = {"bookworm": "libfuse3-3", "trixie": "libfuse3-4"}


class Machine:
    """A booted container. ``root`` is its root directory as seen from outside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._container: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start it; return when all of its units have started."""
        command = ["systemd-nspawn", "--quiet", "-D", str(self.root), "--boot", "--register=no", "--keep-unit"]
        command += ["--capability=all", "--bind=/dev/fuse", "--property=DeviceAllow=/dev/fuse rwm", "--console=pipe"]
        with self.root.with_suffix(".log").open("ab") as log:
            self._container = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.does("systemctl is-system-running | grep -qxE 'running|degraded'"))

    @property
    def _leader(self) -> int:
        """The first process of the container, as seen from outside; while it is set up, another; 0 before."""
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        return int(children.read_text() or 0)

    def shut_down(self) -> None:
        """Let it stop its units and end."""
        assert self._container is not None
        os.kill(self._leader, signal.SIGRTMIN + 4)  # poweroff.target (systemd(1))
        self._container.wait()

    def kill(self) -> None:
        """End it however it is."""
        if self._container is not None and self._container.poll() is None:
            os.kill(self._leader, signal.SIGKILL)
            self._container.wait()

    def run(self, command: str) -> str:
        """Run a shell command as root; return what it prints. It must succeed."""
        done = self._run(command)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def does(self, command: str) -> bool:
        """Say whether a shell command succeeds."""
        return self._run(command).returncode == 0

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-w"]
        environment = ["env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        shell = [*enter, *environment, "sh", "-c", command]
        told = subprocess.PIPE
        return subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT, text=True, check=False)


@contextmanager
def bare_debian() -> Iterator[Machine]:
    """A machine that is not yet booted. The test is skipped where there can be none."""
    if not os.environ.get("HOLDFAST_TEST_MACHINE"):
        pytest.skip("by hand, with HOLDFAST_TEST_MACHINE=1: it takes some minutes")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if missing or os.geteuid() != 0 or not os.path.exists("/dev/fuse") or release not in _FUSE:
        pytest.skip(f"needs root, /dev/fuse, Debian 12 or 13, and {', '.join(missing or _TOOLS)}")
    with tempfile.TemporaryDirectory(prefix="holdfast-machine-", dir="/var/tmp") as directory:
        machine = Machine(Path(directory) / "root")
        machine.root.mkdir()
        subprocess.run(["tar", "-C", str(machine.root), "-xf", str(_image(release))], check=True)
        machine.root.chmod(0o755)  # the archive has it from a temporary directory
        try:
            yield machine
        finally:
            machine.kill()


def _image(release: str) -> Path:
    """Return the archive of the root directory; make it if there is none."""
    cache = os.environ.get("HOLDFAST_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/holdfast"
    image = Path(cache, f"machine-{release}.tar")
    if image.exists():
        return image
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = ["systemd-sysv", "dbus", "fuse3", _FUSE[release], python]
    with tempfile.TemporaryDirectory(prefix="holdfast-image-", dir="/var/tmp") as root:
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, root]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, f"{' '.join(command)} failed:\n{made.stdout[-3000:]}"
        for package in Path(root, "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        unfinished = image.with_suffix(".new")
        subprocess.run(["tar", "-C", root, "-cf", str(unfinished), "."], check=True)
        unfinished.rename(image)
    return image
