"""Programs in Go that tests need: found on the PATH, else in ``$HOLDFAST_CACHE/bin``, where they are built once.

Go comes with the pinned Python packages, the source from Go's module proxy, checked by Go's checksum database. What a build
needs besides (up to some 600 MiB) goes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.tools.cache import cache_directory, locked


class BuildError(Exception):
    """Go could not build it; the message has Go's words."""


def go_program(name: str, module: str) -> Path:
    """Return the path of the program ``name``, which ``module`` (with its version) makes. Raises ``BuildError``."""
    if found := shutil.which(name):
        return Path(found)
    directory = cache_directory() / "bin"
    binary = directory / name
    if not binary.exists():
        with locked(directory / f"{name}.lock"):
            if not binary.exists():
                _build(binary, module)
    return binary


def _build(binary: Path, module: str) -> None:
    with tempfile.TemporaryDirectory(dir=binary.parent) as directory:
        places = {"GOBIN": directory, "GOPATH": f"{directory}/modules", "GOCACHE": f"{directory}/cache"}
        environment = {**os.environ, **places, "GOFLAGS": "-modcacherw"}
        try:
            built = subprocess.run(["go", "install", module], env=environment, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise BuildError(f"{binary.name} is neither on the PATH nor in {binary.parent}, and there is no Go") from None
        if built.returncode != 0:
            raise BuildError(f"go install {module} failed:\n{built.stderr}")
        Path(directory, binary.name).rename(binary)
