"""Bare Debian systems: root directories with what a minimal one with systemd has, and what Holdfast's package depends on.

Their packages come once for each release, by debootstrap(8), into ``$HOLDFAST_CACHE``, so that a test installs without a
network. ``$HOLDFAST_TEST_RELEASES`` names the releases to test on (``bookworm trixie``); without it, it is this machine's.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.tools.cache import cache_directory, locked

OWN_RELEASE = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
_NEEDED = {"bookworm": ["python3.11", "libfuse3-3"], "trixie": ["python3.13", "libfuse3-4"]}
_TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "dpkg-deb", "dpkg-shlibdeps")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def releases() -> list[str]:
    """Return the releases to test on."""
    return os.environ.get("HOLDFAST_TEST_RELEASES", OWN_RELEASE).split() or [""]


def need_bare_debian(release: str) -> None:
    """Skip the test where there can be no such system."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0 or not os.path.exists("/dev/fuse") or release not in _NEEDED:
        pytest.skip(f"needs root, /dev/fuse, Debian 12 or 13, and {', '.join(missing or _TOOLS)}")


@contextmanager
def bare_debian(release: str) -> Iterator[Path]:
    """Yield the root directory of a system of its own."""
    need_bare_debian(release)
    image = _image(release)
    with _directory() as directory:
        root = directory / "root"
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xf", image], check=True)
        root.chmod(0o755)  # the archive has it from a temporary directory
        yield root


def container(root: Path, binds: Mapping[Path, str], *options: str) -> list[str]:
    """Return the command that starts a container in ``root``; ``binds`` are mounted there to be read."""
    command = ["systemd-nspawn", "--quiet", "-D", str(root), "--register=no", "--keep-unit", "--console=pipe"]
    command += ["--capability=all", "--bind=/dev/fuse", "--property=DeviceAllow=/dev/fuse rwm"]
    return [*command, *(f"--bind-ro={source}:{target}" for source, target in binds.items()), *options]


def shell(command: str) -> list[str]:
    """Return the command line for a shell command in a container, with root's usual environment."""
    environment = ["env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
    return [*environment, "sh", "-c", command]


def run_in(root: Path, command: str, binds: Mapping[Path, str] | None = None, *options: str) -> str:
    """Run a shell command as root in ``root``, with nothing else there; return what it prints. It must succeed."""
    started = [
        *container(root, binds or {}, *options),
        *shell(f"exec 2>&1\n{command}"),
    ]  # what the container itself says goes apart
    done = subprocess.run(started, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def _directory() -> Iterator[Path]:
    """A directory on a real disk. Nothing is removed that is still mounted there."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-debian-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        subprocess.run(["chattr", "-f", "-i", directory / "root/mnt/holdfast"], check=False)  # as the package sets it
        subprocess.run(["rm", "-rf", "--one-file-system", directory], check=False)


def _image(release: str) -> Path:
    """Return the archive of the root directory; make it if there is none."""
    packages = ["systemd-sysv", "dbus", "fuse3", *_NEEDED[release]]
    image = cache_directory() / f"debian-{release}-{hashlib.sha256(repr(packages).encode()).hexdigest()[:8]}.tar"
    with locked(Path(f"{image}.lock")):
        if not image.exists():
            _make(image, release, packages)
    return image


def _make(image: Path, release: str, packages: list[str]) -> None:
    with _directory() as root:
        command = [
            "unshare",
            "--mount",
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(packages)}",
            release,
            str(root),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, f"{' '.join(command)} failed:\n{made.stdout[-3000:]}"
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        unfinished = image.with_suffix(".new")
        subprocess.run(["tar", "-C", root, "-cf", unfinished, "."], check=True)
        unfinished.rename(image)
