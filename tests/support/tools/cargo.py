"""Test programs from crates.io, built once into ``$HOLDFAST_CACHE/cargo`` where there is Cargo."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tools.cache import cache_directory, locked


def installed(crate: str, version: str) -> Path:
    """Return the program of ``crate``; skip the test where it can't be built because there is no Cargo."""
    root = cache_directory() / "cargo" / f"{crate}-{version}"
    binary = root / "bin" / crate
    if binary.exists():
        return binary
    if shutil.which("cargo") is None:
        pytest.skip(f"needs Cargo, which ./run does not install, to build {crate}")
    with locked(root / "lock"):
        if not binary.exists():
            command = ["cargo", "install", "--quiet", "--locked", "--root", str(root), "--version", version, crate]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            assert built.returncode == 0, f"{' '.join(command)} failed:\n{built.stderr[-3000:]}"
    return binary
