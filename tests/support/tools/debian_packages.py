"""Debian packages that are unpacked into the cache: nothing is installed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked


def unpacked(name: str, packages: Sequence[str], *, with_dependencies: bool = False) -> Path:
    """Return where the packages are unpacked, ``name`` in the cache.

    ``with_dependencies``: also those that they need and that the system lacks. Raises ``OSError`` or
    ``subprocess.CalledProcessError`` if they can't be had.
    """
    directory = cache_directory() / name
    with locked(cache_directory() / f"{name}.lock"):
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=cache_directory()) as new:
                downloaded, files = Path(new, "packages"), Path(new, "root")
                (downloaded / "partial").mkdir(parents=True)
                into = ["-o", f"Dir::Cache::archives={downloaded}", "-o", "Debug::NoLocking=true"]
                install = ["apt-get", "install", "-qy", "--no-install-recommends", "--reinstall", "--download-only", *into]
                download = install if with_dependencies else ["apt-get", "download", "-q"]
                subprocess.run(["apt-get", "update", "-q"], check=True, capture_output=True)
                subprocess.run([*download, *packages], cwd=downloaded, check=True, capture_output=True)
                for package in downloaded.glob("*.deb"):
                    subprocess.run(["dpkg", "-x", package, files], check=True, capture_output=True)
                files.rename(directory)
    return directory
