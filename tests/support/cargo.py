"""Test programs from crates.io, built once into ``$HOLDFAST_CACHE/cargo`` where there is Cargo."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cache import cache_directory


def installed(crate: str, version: str) -> Path:
    """Return the program of ``crate``; skip the test where it can't be built because there is no Cargo."""
    root = cache_directory() / "cargo" / f"{crate}-{version}"
    binary = root / "bin" / crate
    if binary.exists():
        return binary
    if shutil.which("cargo") is None:
        pytest.skip(f"needs Cargo, which ./run does not install, to build {crate}")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():  # another session may have built it while this one waited
            command = ["cargo", "install", "--quiet", "--locked", "--root", str(root), "--version", version, crate]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, f"{' '.join(command)} failed:\n{built.stderr[-3000:]}"
    return binary
