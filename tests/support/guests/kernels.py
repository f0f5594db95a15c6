"""Kernels of other Debian releases that run as an ordinary program: the package ``user-mode-linux``, with the libc it needs.

Both come once, by apt-get(8), into ``$HOLDFAST_CACHE``. Nothing is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked

RELEASES = {"6.1": "bookworm", "6.12": "trixie"}
"""The release of Debian that each kernel is of."""

_TOOLS = ("apt-get", "dpkg", "unshare", "chroot", "mkfs.ext4", "gcc")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_ARCHIVE = "http://deb.debian.org/debian"
_PACKAGES = ("user-mode-linux", "libc6")


class NoKernelError(Exception):
    """A kernel can't be had here. The message says why."""


def kernel(version: str) -> Path:
    """Return a root directory that has the kernel, its modules, and the libc that it runs with."""
    _need_machine()
    directory = cache_directory() / f"kernel-{version}"
    with locked(Path(f"{directory}.lock")):
        if not directory.exists():
            _fetch(RELEASES[version], directory)
        _preload(directory)
    return directory


def _need_machine() -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoKernelError(f"needs {', '.join(missing)}")
    if os.geteuid() != 0 or platform.machine() != "x86_64" or not os.path.exists(_KEYRING):
        raise NoKernelError("needs root on an x86-64 Debian: user-mode Linux has no other processor")


def _preload(root: Path) -> None:
    """Have the kernel load ``whole_xstate.c``. Built without a libc, as the kernel's may be older than this machine's."""
    library = Path("usr/lib/whole_xstate.so")
    source = Path(__file__).with_name("whole_xstate.c")
    options = ["-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", "-nostdlib", "-fno-stack-protector"]
    subprocess.run(["gcc", *options, source, "-o", root / library], check=True)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.preload").write_text(f"/{library}\n")


def _fetch(release: str, directory: Path) -> None:
    unfinished = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    archives = unfinished / "archives"
    (archives / "lists/partial").mkdir(parents=True)
    sources = archives / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] {_ARCHIVE} {release} main\n")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": archives / "lists",
        "Dir::State::Status": "/dev/null",
        "Dir::Cache": archives,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    for action in (["update", "--error-on=any"], ["download", *_PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-q", *options, *action], cwd=archives, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NoKernelError(f"user-mode Linux of {release} can't be fetched: {done.stderr.strip()[-300:]}")
    for package in archives.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, unfinished], check=True)
    shutil.rmtree(archives)
    for name in ("lib", "lib64"):
        if not (unfinished / name).exists():  # before trixie, libc has them as directories
            (unfinished / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "host", "root", "tmp"):
        (unfinished / name).mkdir(exist_ok=True)
    unfinished.rename(directory)
